package redisbackend_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
)

// What is before the host of a URL may be a password, whatever is wrong with the URL.
func TestErrorsOfOpenHaveNoPartOfUserAndPassword(t *testing.T) {
	for _, userinfo := range []string{
		"zoe:s3cr%tpw", "zoe:s3cr/tpw", "zoe:s3cr#tpw", "zoe:s3cr?tpw", "zoe:s3cr tpw", "zoe:s3cr[tpw", "zoe:s3cr\ntpw", "zoe:s3cr%zztpw",
		"zoe:12/tpw", "zoe:12#tpw", "zoe:12?tpw", "zoe:12?db=tpw", "zoe:s3cr@tpw", "zoe:s3cr@tpw/s3cr", "zoe:s3cr@tpw?s3cr", ":s3cr#tpw", "zoe", "zoe:s3crtpw",
	} {
		for _, format := range []string{
			"redis://%s@127.0.0.1:1", "redis://%s@127.0.0.1:port", "redis://%s@127.0.0.1:1/nodb", "redis://%s@127.0.0.1:1?db=x&dial_timeout=y",
			"redis://%s@[::1", "rediss://%s@127.0.0.1:1?skip_verify=x", "unix://%s@/nowhere", "http://%s@127.0.0.1", "redis:%s@127.0.0.1:1",
			"redis:/%s@127.0.0.1:1", "%s@127.0.0.1:1", "redis://127.0.0.1:1?addr=%s@127.0.0.1:1", "redis://127.0.0.1:1?addr=redis://%s@127.0.0.1:port",
		} {
			url := fmt.Sprintf(format, userinfo)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			b, err := throttr.Open(ctx, url)
			cancel()
			if err == nil {
				b.Close()
				t.Errorf("%q: no error", url)
				continue
			}
			if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, "zoe") || strings.Contains(text, "s3cr") || strings.Contains(text, "tpw") {
				t.Errorf("%q: %s", url, text)
			}
		}
	}
}

// Without an @, a password that begins with digits and a slash seems to be a port and a database.
func TestErrorsOfOpenHaveNoPasswordWithoutAHost(t *testing.T) {
	for _, url := range []string{"redis://zoe:12/tpw", "redis://:12/tpw", "rediss://zoe:12/tpw/s3cr", "redis://zoe:12?db=tpw", "redis://zoe:12/1?protocol=tpw", "redis://zoe:12?tpw=1", "redis://zoe:12/1?tpw"} {
		_, err := throttr.Open(t.Context(), url)
		expect(t, err != nil && !strings.Contains(err.Error(), "tpw"), "%q: %v", url, err)
	}
}

func TestErrorsOfOpenSayWhatIsWrong(t *testing.T) {
	for url, want := range map[string]string{
		"redis://zoe:s3cr%tpw@127.0.0.1":            "user or password",
		"redis://zoe:s3cr/tpw@127.0.0.1":            "percent-encoded",
		"redis://zoe:pw@127.0.0.1:port":             "host or port",
		"redis://zoe:pw@127.0.0.1/nodb":             `invalid database number: "nodb"`,
		"redis://zoe:pw@127.0.0.1:1?dial_timeout=x": `invalid dial timeout: "x"`,
	} {
		if _, err := throttr.Open(t.Context(), url); err == nil || !strings.HasPrefix(err.Error(), "redisbackend: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", url, err, want)
		}
	}
}

// Some servers repeat the arguments of a command that they do not know, AUTH among them.
func TestErrorsOfOpenHaveNoPasswordThatTheServerRepeats(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					if strings.HasPrefix(lines.Text(), "*") {
						fmt.Fprint(conn, "-ERR unknown command 'AUTH', with args beginning with: 'zoe' 's3cr' \r\n")
					}
				}
			}()
		}
	}()
	_, err = throttr.Open(t.Context(), "redis://zoe:s3cr@"+l.Addr().String())
	if err == nil || strings.Contains(err.Error(), "s3cr") || strings.Contains(err.Error(), "zoe") || !strings.HasPrefix(err.Error(), "redisbackend: connect: ") {
		t.Errorf("%v", err)
	}
}
