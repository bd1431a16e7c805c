package memory

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/throttr-go/throttr/window"
)

func init() { window.Register("memory", open) }

// open opens a backend for a URL such as memory://?max_keys=100000. Errors do not have the URL, which may
// have been meant for another store, with a password.
func open(_ context.Context, rawURL string) (window.BackendCloser, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: memory: the URL can't be parsed", window.ErrConfig)
	}
	if u.Host != "" || u.User != nil || u.Path != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: memory: a URL is memory:// and parameters", window.ErrConfig)
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w: memory: the parameters of the URL can't be parsed", window.ErrConfig)
	}
	var opts []Option
	for name, value := range values {
		switch name {
		case "max_keys":
			n, err := strconv.Atoi(value[0])
			if err != nil || n < 0 || len(value) > 1 {
				return nil, fmt.Errorf("%w: memory: max_keys of the URL is not one number of 0 or more",
					window.ErrConfig)
			}
			opts = append(opts, WithMaxKeys(n))
		case "lazy": // there is nothing to connect to
			if _, err := strconv.ParseBool(value[0]); err != nil || len(value) > 1 {
				return nil, fmt.Errorf("%w: memory: lazy of the URL is not true or false", window.ErrConfig)
			}
		default:
			return nil, fmt.Errorf("%w: memory: URL parameter %.32q is unknown", window.ErrConfig, name)
		}
	}
	return New(opts...), nil
}
