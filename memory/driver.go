package memory

import (
	"cmp"
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
	maxKeys := 0
	for name, values := range parameters {
		var mistake error
		switch {
		case name == "max_keys" && len(values) == 1:
			maxKeys, mistake = strconv.Atoi(values[0])
		case name == "lazy" && len(values) == 1: // there is nothing to connect to
			_, mistake = strconv.ParseBool(values[0])
		default:
			mistake = errURL
		}
		err = cmp.Or(err, mistake)
	}
	if err != nil || maxKeys < 0 {
		return nil, errURL
	}
	return New(WithMaxKeys(maxKeys)), nil
}
