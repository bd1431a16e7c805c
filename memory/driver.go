package memory

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/throttr-go/throttr/window"
)

func init() { window.Register("memory", open) }

// errURL does not have the URL, which may have been meant for another store, with a password.
var errURL = fmt.Errorf("%w: memory: a URL is memory://, with max_keys=N or lazy=true as parameters", window.ErrConfig)

// open opens a backend for a URL such as memory://?max_keys=100000.
func open(_ context.Context, rawURL string) (window.BackendCloser, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host != "" || u.User != nil || u.Path != "" || u.Fragment != "" {
		return nil, errURL
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errURL
	}
	maxKeys := 0
	for name, values := range parameters {
		switch {
		case len(values) > 1:
			return nil, errURL
		case name == "max_keys":
			maxKeys, err = strconv.Atoi(values[0])
		case name == "lazy": // there is nothing to connect to
			_, err = strconv.ParseBool(values[0])
		default:
			return nil, errURL
		}
		if err != nil {
			return nil, errURL
		}
	}
	if maxKeys < 0 {
		return nil, errURL
	}
	return New(WithMaxKeys(maxKeys)), nil
}
