//go:build unix

package conn

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
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
	before := processorTime(b)
	for i := range callers {
		all.Go(func() { round((b.N + i) / callers) })
	}
	all.Wait()
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// BenchmarkLoneCaller measures a caller that reads its own responses.
func BenchmarkLoneCaller(b *testing.B) { benchmarkCalls(b, "tcp", 1) }

// BenchmarkCallersShareAWrite measures callers that write for each other. It justifies
// runtime.Gosched in Conn.Enqueue and in Conn.readLoop.
func BenchmarkCallersShareAWrite(b *testing.B) {
	for _, callers := range []int{2, 8, 64, 512} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) { benchmarkCalls(b, "tcp", callers) })
	}
}

// BenchmarkWriterGoroutine measures callers of a connection that can't be written without
// blocking. It justifies runtime.Gosched in writer.writeBlocking.
func BenchmarkWriterGoroutine(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) { benchmarkCalls(b, "tls", callers) })
	}
}

// processorTime returns the processor time of this process. It varies less than the elapsed
// time does.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
