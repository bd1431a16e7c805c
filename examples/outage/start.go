package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/mockserver"
)

// showStart prints what happens to the hits of a program that starts while its server is away.
func showStart(ctx context.Context, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0") // finds a free port
	if err != nil {
		return err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}

	backend, err := throttr.Open(ctx, "throttr://"+addr+"?lazy=true")
	if err != nil {
		return err
	}
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend, throttr.WithPolicy(throttr.AllowHits))

	byPolicy := 0
	for begun := time.Now(); time.Since(begun) < outage; wait(ctx, pause) {
		res, err := limiter.Hit(ctx, "user:42", scale, limit)
		if err != nil {
			return err
		}
		if res.Degraded {
			byPolicy++
		}
	}
	srv, err := mockserver.Start(mockserver.WithAddr("tcp", addr))
	if err != nil {
		return err
	}
	defer srv.Close()
	begun := time.Now()
	for {
		res, err := limiter.Hit(ctx, "user:42", scale, limit)
		if err != nil {
			return err
		}
		if !res.Degraded {
			break
		}
		byPolicy++
		wait(ctx, pause)
	}
	_, err = fmt.Fprintf(out, "\nA program that starts %v before its server, with lazy=true: the policy decided %d hits;\nthe server decided the first one %v after its start.\n",
		outage, byPolicy, time.Since(begun).Round(time.Millisecond))
	return err
}
