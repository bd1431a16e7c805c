package conn

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// The benchmarks use a server in another process, as goroutines of a server would compete
// with callers for the scheduler.

// serverMode is the environment variable that makes the test binary a server. Its value is
// "tcp" or "tls".
const serverMode = "THROTTR_CONN_SERVER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(serverMode); mode != "" {
		if err := serve(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// increase is the request of the benchmarks. A response is one byte.
var increase = codec.Update[uint64]{Attribute: codec.Quota, Change: codec.Increase, Value: 1, Key: []byte("counter")}

// serve responds to requests with success until stdin is closed, and prints its address.
func serve(mode string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if mode == "tls" {
		cert, err := selfSigned()
		if err != nil {
			return err
		}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})
	}
	frame, err := increase.AppendBinary(nil)
	if err != nil {
		return err
	}
	go func() {
		for nc, err := l.Accept(); err == nil; nc, err = l.Accept() {
			go respond(nc, len(frame))
		}
	}()
	fmt.Println(l.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// respond writes one byte for each request of the given size.
func respond(nc net.Conn, size int) {
	in, out := make([]byte, 64<<10), bytes.Repeat([]byte{1}, 64<<10)
	for rest := 0; ; {
		n, err := nc.Read(in)
		if err != nil {
			return
		}
		rest += n
		if _, err := nc.Write(out[:rest/size]); err != nil {
			return
		}
		rest %= size
	}
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// connectTo starts a server and returns a connection to it.
func connectTo(b *testing.B, mode string) (*Conn[uint64], *CallPool[uint64]) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverMode+"="+mode)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(b, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(b, err)
	nc, err := net.Dial("tcp", strings.TrimSpace(addr))
	require.NoError(b, err)
	if mode == "tls" {
		nc = tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
	}
	calls := new(CallPool[uint64])
	c := New(nc, nil, Options[uint64]{
		MaxInFlight: 512, MaxQueued: 1 << 20, StallTimeout: time.Minute, Calls: calls, Counters: new(Counters),
	})
	b.Cleanup(func() { c.Close(ErrGone) })
	return c, calls
}

// benchmarkCalls has so many callers make calls one after the other.
func benchmarkCalls(b *testing.B, mode string, callers int) {
	c, calls := connectTo(b, mode)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	round := func(n int) {
		for range n {
			cl := calls.Get()
			Add(cl, increase)
			if err := c.Enqueue(cl, true); err != nil {
				b.Error(err)
				return
			}
			if _, _, err := cl.Wait(ctx); err != nil {
				b.Error(err)
				return
			}
			calls.Put(cl)
		}
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() { round(20) })
	}
	all.Wait()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range callers {
		all.Go(func() { round((b.N + i) / callers) })
	}
	all.Wait()
}

func BenchmarkLoneCaller(b *testing.B) { benchmarkCalls(b, "tcp", 1) }

func BenchmarkCallersShareAWrite(b *testing.B) {
	for _, callers := range []int{2, 8, 64, 512} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) { benchmarkCalls(b, "tcp", callers) })
	}
}

func BenchmarkWriterGoroutineGathers(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) { benchmarkCalls(b, "tls", callers) })
	}
}
