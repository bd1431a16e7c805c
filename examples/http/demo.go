package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// demonstrate sends requests to the server and prints the responses.
func demonstrate(ctx context.Context, url string, out io.Writer) error {
	for _, path := range []string{"/", "/", "/", "/", "/", "/", "/healthz"} {
		if err := get(ctx, url+path, out); err != nil {
			return err
		}
	}
	return nil
}

// get sends a request and prints the response.
func get(ctx context.Context, url string, out io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nGET %s\n%s\n", req.URL.Path, res.Status)
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
		for _, value := range res.Header.Values(name) {
			fmt.Fprintf(out, "%s: %s\n", name, value)
		}
	}
	_, err = fmt.Fprintf(out, "\n    %s\n", strings.TrimSpace(string(body)))
	return err
}
