package mockserver_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/mockserver"
)

// exchange sends a request and returns its response, as a client does.
func exchange(conn net.Conn, req codec.Request) codec.Response {
	if err := uint16.NewEncoder(conn).Encode(req); err != nil {
		panic(err)
	}
	res, err := uint16.NewDecoder(conn).Response(req.ResponseKind())
	if err != nil {
		panic(err)
	}
	return res
}

func ExampleStart() {
	srv, err := mockserver.Start(mockserver.WithValueSize(2))
	if err != nil {
		panic(err)
	}
	defer srv.Close()

	conn, err := net.Dial("tcp", srv.Addr())
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	minute := uint16.TTL{Amount: 60, Unit: codec.Seconds}
	fmt.Println(exchange(conn, uint16.Insert{Key: []byte("user:42"), Quota: 5, TTL: minute}))
	fmt.Println(srv.Counter("user:42"))
	fmt.Println(srv.Requests(codec.OpInsert), srv.Violations())
	// Output:
	// true
	// 5 true
	// 1 []
}

// start starts a server and connects to it.
func start(opts ...mockserver.Option) (srv *mockserver.Server, conn net.Conn, end func()) {
	srv, err := mockserver.Start(opts...)
	if err != nil {
		panic(err)
	}
	if conn, err = srv.Dial(context.Background()); err != nil {
		panic(err)
	}
	return srv, conn, func() { srv.Close() }
}

// recorder stands for a *testing.T.
type recorder struct {
	cleanups []func()
	errors   []string
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf("fatal: "+format, args...) }

func ExampleRunT() {
	t := &recorder{} // in a test: its *testing.T

	srv := mockserver.RunT(t)
	conn, err := srv.Dial(context.Background())
	if err != nil {
		panic(err)
	}
	conn.Write([]byte{0x20})
	_, err = io.ReadAll(conn)
	fmt.Println("connection ended:", err)

	t.cleanups[0]() // the test ends
	fmt.Println(t.errors[0])
	// Output:
	// connection ended: <nil>
	// mockserver: violation: H6: connection 1: op 0x20 kills a real server
}

// An expired record keeps its key for another 10 s, as on a real server.
func ExampleServer_Advance() {
	srv, conn, end := start(mockserver.WithVirtualClock())
	defer end()
	insert := uint16.Insert{Key: []byte("k"), Quota: 5, TTL: uint16.TTL{Amount: 60, Unit: codec.Seconds}}
	fmt.Println(exchange(conn, insert))
	srv.Advance(time.Minute)
	fmt.Println(exchange(conn, insert))
	srv.Advance(10 * time.Second)
	fmt.Println(exchange(conn, insert))
	fmt.Println(srv.Now().Sub(mockserver.Epoch), srv.Expired())
	// Output:
	// true
	// false
	// true
	// 1m10s 1
}

// Two records that expire within 50 µs of each other silence a real server for good. A
// client that purges its records in time never lets that happen.
func ExampleWithRealCollector() {
	srv, _, end := start(mockserver.WithRealCollector(), mockserver.WithVirtualClock())
	defer end()
	srv.Set("a", 1, time.Second+20*time.Microsecond)
	srv.Set("b", 1, time.Second)
	srv.Advance(time.Minute)
	fmt.Println(srv.LockedUp())
	for _, v := range srv.Violations() {
		fmt.Println(v)
	}
	// Output:
	// true
	// H12: the server locked up: its collector ran at 00:00:01.000000, which takes 50.7µs with 2 records, and the expiry of "a" was due 20µs later
}

func ExampleHazards() {
	for _, h := range mockserver.Hazards() {
		fmt.Println(h)
	}
	// Output:
	// H1 Grace
	// H2 LateExpiry
	// H3 Wrap
	// H8 Events
	// H12 LockUp
	// H4 Overflow
	// H14 GarbledList
	// H17 StartUp
	// H19 StrayUnit
	// H9 Reorder
}

func ExampleServer_Inject() {
	srv, conn, end := start()
	defer end()
	// The response to the second QUERY is garbage.
	remove := srv.Inject(mockserver.Fault{Op: codec.OpQuery, Skip: 1, Times: 1, Replace: []byte{0x47}})
	defer remove()
	for range 3 {
		conn.Write([]byte("\x02\x01k"))
		response := make([]byte, 1)
		io.ReadFull(conn, response)
		fmt.Printf("%02x\n", response)
	}
	// Output:
	// 00
	// 47
	// 00
}

func ExampleServer_Cut() {
	srv, _, end := start()
	defer end()
	// A connection ends after two bytes of responses.
	defer srv.Cut(mockserver.Cut{Direction: mockserver.ToClient, After: 2})()
	srv.Set("k", 5, time.Hour)
	conn, err := srv.Dial(context.Background())
	if err != nil {
		panic(err)
	}
	conn.Write([]byte("\x02\x01k"))
	response, err := io.ReadAll(conn)
	fmt.Printf("%x %v\n", response, err)
	// Output:
	// 0105 <nil>
}
