package httplimit_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A reverse proxy closes one direction of a connection when one side has finished, and passes on what the other still
// sends. Each kind of connection that a server can have keeps the methods for that.
func TestAHijackedConnectionCanBeClosedInOneDirection(t *testing.T) {
	limit, places := oneAtATime(t)
	dir := t.TempDir()
	for name, network := range map[string]func(*httptest.Server) (net.Conn, error){
		"TCP": func(s *httptest.Server) (net.Conn, error) {
			s.Start()
			return net.Dial("tcp", s.Listener.Addr().String())
		},
		"TLS": func(s *httptest.Server) (net.Conn, error) {
			s.StartTLS()
			return tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		},
		"Unix": func(s *httptest.Server) (net.Conn, error) {
			path := filepath.Join(dir, "socket")
			l, err := net.Listen("unix", path)
			if err != nil {
				return nil, err
			}
			s.Listener.Close()
			s.Listener = l
			s.Start()
			return net.Dial("unix", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			received := make(chan string, 1)
			s := httptest.NewUnstartedServer(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nbye")
				if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
					t.Error(err)
				}
				conn.SetReadDeadline(time.Now().Add(10 * time.Second))
				rest, _ := io.ReadAll(rw)
				received <- string(rest)
			})))
			defer s.Close()
			conn, err := network(s)
			require.NoError(t, err)
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			said, err := io.ReadAll(conn) // until the handler has finished
			require.NoError(t, err)
			require.Contains(t, string(said), "bye")
			io.WriteString(conn, "my last words")
			require.NoError(t, conn.(interface{ CloseWrite() error }).CloseWrite())
			require.Equal(t, "my last words", <-received)
			require.Eventually(t, func() bool { return places.Stats().InUse == 0 }, 10*time.Second, time.Millisecond)
		})
	}
}
