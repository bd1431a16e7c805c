package throttr_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
)

// What is before the host of a URL may be a password, whatever is wrong with the URL.
func TestErrorsOfURLsHaveNoPartOfUserAndPassword(t *testing.T) {
	for _, userinfo := range []string{
		"zoe:s3cr%tpw", "zoe:s3cr/tpw", "zoe:s3cr#tpw", "zoe:s3cr?tpw", "zoe:s3cr?%tpw", "zoe:s3cr?tpw=1", "zoe:s3cr?lazy=tpw", "zoe:s3cr?lazy=1&lazy=tpw",
		"zoe:s3cr tpw", "zoe:s3cr,tpw", "zoe:s3cr\ntpw", "zoe:12?max_conns=tpw", "zoe:s3cr@tpw", "zoe:s3cr@tpw?s3cr", "zoe:s3cr://tpw", "zoe", "zoe:s3crtpw",
	} {
		for _, format := range []string{
			"throttr://%s@127.0.0.1:1", "throttr://%s@127.0.0.1:port", "throttr://%s@127.0.0.1?lazy=x", "throttrs://%s@[::1", "unix://%s@/nowhere",
			"unix://%s@/nowhere?lazy=x", "http://%s@127.0.0.1", "memory://%s@127.0.0.1", "throttr:%s@127.0.0.1", "%s@127.0.0.1", "throttr://%s@", "throttr://127.0.0.1:1,%s@127.0.0.1:2",
		} {
			url := fmt.Sprintf(format, userinfo)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			b, err := throttr.Open(ctx, url)
			cancel()
			if err == nil {
				b.Close()
			}
			require.Error(t, err, url)
			for _, part := range []string{"zoe", "s3cr", "tpw"} {
				require.NotContains(t, err.Error(), part, url)
			}
		}
	}
}
