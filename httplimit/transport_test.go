package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

// api is somebody else's API, over a network in virtual time. It is an http.RoundTripper.
type api struct {
	dial    func(n int) time.Duration // until request n has a connection
	write   func(n int) time.Duration // after that, until it is written
	network time.Duration             // after that, a request takes up to so long
	twice   func(n int) bool          // whether it is sent on two connections
	respond func(r *http.Request, n int) *http.Response

	sent atomic.Int64 // bytes of bodies

	mu       sync.Mutex // guards what follows
	requests int
	arrivals []time.Time
	open     int  // bodies, of responses and of some requests, that were not closed
	idle     bool // CloseIdleConnections was not called
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	n := a.requests
	a.requests++
	a.mu.Unlock()
	a.send(r, n)
	if a.twice != nil && a.twice(n) {
		a.send(r, n)
	}
	if r.Body != nil {
		sent, _ := io.Copy(io.Discard, r.Body)
		a.sent.Add(sent)
		r.Body.Close()
	}
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}
	a.mu.Lock()
	a.open++
	a.mu.Unlock()
	if a.respond != nil {
		res = a.respond(r, n)
	}
	res.Request, res.Body = r, &body{Reader: strings.NewReader("hello"), api: a}
	return res, nil
}

// send sends a request on one connection.
func (a *api) send(r *http.Request, n int) {
	if a.dial != nil {
		time.Sleep(a.dial(n))
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		trace.GotConn(httptrace.GotConnInfo{})
		if a.write != nil {
			time.Sleep(a.write(n))
		}
	}
	if a.network > 0 {
		time.Sleep(rand.N(a.network))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.arrivals = append(a.arrivals, time.Now())
}

// CloseIdleConnections closes connections.
func (a *api) CloseIdleConnections() { a.idle = false }

// body is the body of a response, or of a request.
type body struct {
	io.Reader
	api  *api
	once sync.Once
}

func (b *body) Close() error {
	b.once.Do(func() {
		b.api.mu.Lock()
		b.api.open--
		b.api.mu.Unlock()
	})
	return nil
}

// most returns the most that has arrived in any interval of a scale.
func (a *api) most(scale time.Duration) (most int) {
	first := 0
	for i, at := range a.arrivals { // in their order: the mutex is held while one is added
		for at.Sub(a.arrivals[first]) >= scale {
			first++
		}
		most = max(most, i+1-first)
	}
	return most
}

func respond(status int, fields ...string) *http.Response {
	res := &http.Response{StatusCode: status, Header: http.Header{}}
	for i := 0; i < len(fields); i += 2 {
		res.Header.Add(fields[i], fields[i+1])
	}
	return res
}

// fleet is processes that share a backend, each with clients that send requests one after the other.
type fleet struct {
	transports []*httplimit.Transport
	all        sync.WaitGroup
}

// withFleet calls f in virtual time.
func withFleet(t *testing.T, processes int, cfg httplimit.TransportConfig, f func(t *testing.T, fl *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		backend := memory.New(memory.WithClock(time.Now))
		defer backend.Close()
		fl := &fleet{}
		for range processes {
			transport, err := httplimit.NewTransport(throttr.NewRateLimit(backend), cfg)
			require.NoError(t, err)
			fl.transports = append(fl.transports, transport)
		}
		clear(cfg.Limits) // the transports have a copy
		f(t, fl)
		fl.all.Wait()
	})
}

// get makes a request of the first transport.
func (fl *fleet) get(ctx context.Context) (*http.Response, error) {
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
	return fl.transports[0].RoundTrip(r)
}

// got makes requests of the first transport, one after the other, which all succeed.
func (fl *fleet) got(t *testing.T, n int) {
	t.Helper()
	for range n {
		res, err := fl.get(t.Context())
		require.NoError(t, err)
		res.Body.Close()
	}
}

// send has clients of each process send requests for a time.
func (fl *fleet) send(t *testing.T, clients int, d time.Duration) {
	end := time.Now().Add(d)
	for _, transport := range fl.transports {
		for range clients {
			fl.all.Go(func() {
				for time.Now().Before(end) {
					r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test/", nil)
					res, err := transport.RoundTrip(r)
					if err != nil {
						t.Error(err)
						return
					}
					res.Body.Close()
				}
			})
		}
	}
	fl.all.Wait()
}

func TestTransportKeepsToTheLimitInAnyInterval(t *testing.T) {
	const limit, seconds = 100, 20
	some := func(n int) time.Duration { return time.Duration(n/100%2*(n%2)) * 19 * time.Millisecond }
	together := func(int) time.Duration {
		return time.Until(time.Now().Truncate(20 * time.Millisecond).Add(20 * time.Millisecond))
	}
	for name, test := range map[string]struct {
		api    *api
		bucket bool
		least  float64 // of the limit that must be used
	}{
		"a network":                {api: &api{network: 20 * time.Millisecond}, least: 0.95},
		"slow connections":         {api: &api{dial: some}, least: 0.95},
		"released at once":         {api: &api{dial: together}, least: 0.95},
		"slow writes":              {api: &api{write: some}, least: 0.95},
		"bucket":                   {api: &api{network: 10 * time.Millisecond}, bucket: true, least: 0.85},
		"bucket, slow connections": {api: &api{dial: some}, bucket: true, least: 0.85},
	} {
		t.Run(name, func(t *testing.T) {
			server := test.api
			cfg := httplimit.TransportConfig{
				Limits: []throttr.Limit{{Max: limit, Scale: time.Second}}, Margin: 20 * time.Millisecond, Base: server,
			}
			if test.bucket {
				cfg.Limits[0] = throttr.Limit{Max: limit - 10, Burst: 10, Scale: time.Second, Algorithm: throttr.TokenBucket}
			}
			withFleet(t, 8, cfg, func(t *testing.T, fl *fleet) {
				begun := time.Now()
				fl.send(t, 30, seconds*time.Second)
				require.LessOrEqual(t, server.most(time.Second), limit)
				used := float64(len(server.arrivals)) / (limit * time.Since(begun).Seconds())
				t.Logf("%.1f %% of the limit are used", 100*used)
				require.Greater(t, used, test.least)
				require.Zero(t, server.open)
			})
		})
	}
}

func TestAPauseHoldsBackAllProcesses(t *testing.T) {
	const pause = 30 * time.Second
	const network = 10 * time.Millisecond
	var mu sync.Mutex // guards told
	var told time.Time
	server := &api{network: network}
	server.respond = func(_ *http.Request, n int) *http.Response {
		mu.Lock()
		defer mu.Unlock()
		if n == 500 {
			told = time.Now()
		}
		if told.IsZero() || time.Since(told) > network { // those on their way are told, too
			return respond(200)
		}
		return respond(429, "Retry-After", strconv.Itoa(int(pause.Seconds())))
	}
	cfg := httplimit.TransportConfig{Base: server, Limits: []throttr.Limit{{Max: 100, Scale: time.Second}}}
	withFleet(t, 8, cfg, func(t *testing.T, fl *fleet) {
		fl.send(t, 10, 50*time.Second)
		require.False(t, told.IsZero())
		after, next := 0, time.Time{}
		for _, at := range server.arrivals {
			if at.After(told.Add(network)) && at.Before(told.Add(pause)) {
				after++
			}
			if next.IsZero() && at.After(told.Add(time.Second)) {
				next = at
			}
		}
		require.Zero(t, after, "sent after a round trip, and before the end of the pause")
		require.WithinDuration(t, told.Add(pause+pause/10), next, pause/10, "many answers are one pause")
		require.Greater(t, len(server.arrivals), 1500, "all goes on after it")
	})
}

func TestPausesThatResponsesDemand(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	unix := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	reset := func(field string) *http.Response {
		return respond(200, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", field)
	}
	for name, test := range map[string]struct {
		res  *http.Response
		want time.Duration
	}{
		"nothing":                 {respond(200), 0},
		"an error":                {respond(500, "Retry-After", "9"), 0},
		"seconds":                 {respond(429, "Retry-After", "9"), 9 * time.Second},
		"503":                     {respond(503, "Retry-After", " 9 "), 9 * time.Second},
		"503 without a time":      {respond(503), 0},
		"429 without a time":      {respond(429), time.Second},
		"not at once":             {respond(429, "Retry-After", "0"), 0},
		"a date":                  {respond(429, "Retry-After", date(time.Minute)), time.Minute},
		"a date that has passed":  {respond(429, "Retry-After", date(-time.Minute)), 0},
		"too long":                {respond(429, "Retry-After", "99999999999999999999"), 1 << 32 * time.Second},
		"no number":               {respond(429, "Retry-After", "NaN"), time.Second},
		"no decimal":              {respond(429, "Retry-After", "0x1p40"), time.Second},
		"an exponent":             {respond(429, "Retry-After", "1e9"), time.Second},
		"an underscore":           {respond(429, "Retry-After", "1_0"), time.Second},
		"a fraction":              {respond(429, "Retry-After", "1.5"), 1500 * time.Millisecond},
		"negative":                {respond(429, "Retry-After", "-1"), time.Second},
		"Retry-After comes first": {respond(429, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9", "Retry-After", "3"), 3 * time.Second},
		"legacy":                  {respond(200, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"), 9 * time.Second},
		"legacy, a time":          {reset(unix(time.Hour)), time.Hour},
		"legacy, a past time":     {reset(unix(-time.Hour)), 0},
		"legacy, milliseconds":    {reset(unix(time.Hour) + "000"), time.Hour},
		"legacy, microseconds":    {reset(unix(2*time.Second) + "500000"), 2500 * time.Millisecond},
		"legacy, nanoseconds":     {reset(unix(time.Hour) + "000000000"), time.Hour},
		"legacy, a year":          {reset("31622400"), 366 * 24 * time.Hour},
		"legacy, more":            {reset("31622401"), 0},
		"legacy, a time too far":  {reset(unix(9000 * time.Hour)), 0},
		"legacy, no number":       {reset("Inf"), 0},
		"a time of Retry-After":   {respond(429, "Retry-After", unix(time.Minute)), time.Minute},
		"legacy, quota left":      {respond(200, "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "9"), 0},
	} {
		test.res.Header.Set("Date", date(0))
		require.Equal(t, test.want, httplimit.Pause(test.res), name)
	}
}

func TestNewTransportRefusesWhatExceedsTheLimit(t *testing.T) {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	minute := throttr.Limit{Name: "a", Max: 10, Scale: time.Minute}
	with := func(a throttr.Algorithm) throttr.Limit {
		l := minute
		l.Algorithm = a
		return l
	}
	for text, cfg := range map[string]httplimit.TransportConfig{
		"twice its Max in an interval": {Limits: []throttr.Limit{with(throttr.FixedWindow)}},
		"allows up to twice its Max":   {Limits: []throttr.Limit{with(throttr.SlidingWindow)}},
		"up to twice its Max in an":    {Limits: []throttr.Limit{with(throttr.AlignedWindow)}},
		"the API's calendar":           {Limits: []throttr.Limit{{Name: "a", Max: 10, Calendar: throttr.Month}}},
		"without a Burst":              {Limits: []throttr.Limit{with(throttr.TokenBucket)}},
		`limits "a: 10 in 1m0s" and "a: 9 in 1m0s" share their count`: {Limits: []throttr.Limit{minute, {Name: "a", Max: 9, Scale: time.Minute}}},
		"Margin, MaxPause and Retries":                                {Margin: -1},
		"MaxPause and Retries are":                                    {MaxPause: -1},
		"Retries are at least 0":                                      {Retries: -1},
		"Margin is at most 1h0m0s":                                    {Margin: math.MaxInt64, Limits: []throttr.Limit{minute}},
		"0s is less than 1ms":                                         {Limits: []throttr.Limit{{Max: 1}}},
		"60ns is less than 1ms":                                       {Limits: []throttr.Limit{{Max: 1, Scale: 60}}},
		"-1s is less than 1ms":                                        {Limits: []throttr.Limit{{Max: 1, Scale: -time.Second}}},
	} {
		_, err := httplimit.NewTransport(limiter, cfg)
		require.ErrorIs(t, err, throttr.ErrConfig, text)
		require.ErrorContains(t, err, text)
	}
	second := throttr.Limit{Name: "a", Max: 1, Scale: time.Second}
	for _, limits := range [][]throttr.Limit{nil, {minute, second}, {minute, {Name: "b", Max: 10, Scale: time.Minute}}} {
		_, err := httplimit.NewTransport(limiter, httplimit.TransportConfig{Limits: limits})
		require.NoError(t, err)
	}
}

// What can't be sent in time fails at once, and its body is closed.
func TestTransportFailsAtOnceIfTheTurnComesTooLate(t *testing.T) {
	server := &api{}
	cfg := httplimit.TransportConfig{Base: server, Limits: []throttr.Limit{{Max: 1, Scale: time.Minute}}}
	withFleet(t, 1, cfg, func(t *testing.T, fl *fleet) {
		send := func(ctx context.Context, url string) error {
			server.open++
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, &body{Reader: strings.NewReader("x"), api: server})
			require.NoError(t, err)
			res, err := fl.transports[0].RoundTrip(r)
			if err == nil {
				res.Body.Close()
			}
			require.Zero(t, server.open, "the body is closed")
			return err
		}
		require.NoError(t, send(t.Context(), "http://api.test/a"))
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for _, same := range []string{"http://api.test/b", "http://API.test:80/", "https://api.test:443/"} {
			var late *throttr.DeadlineError
			require.ErrorAs(t, send(ctx, same), &late, same)
		}
		require.Zero(t, time.Since(begun))
		for _, other := range []string{"http://other.test/", "http://api.test:8080/", "https://api.test:80/"} {
			require.NoError(t, send(ctx, other), other)
		}
		canceled, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		require.ErrorIs(t, send(canceled, "http://api.test/c"), context.Canceled)
		require.Equal(t, time.Second, time.Since(begun))
		require.Len(t, server.arrivals, 4)
	})
}

func TestTransportRepeatsWhatIsSafe(t *testing.T) {
	busy := respond(503, "Retry-After", "10")
	for name, test := range map[string]struct {
		method, field string
		body          io.Reader
		res           *http.Response // a refusal
		refusals      int
		tries         int
		after         float64 // seconds
	}{
		"GET":                {http.MethodGet, "", nil, busy, 2, 3, 10},
		"too often":          {http.MethodGet, "", nil, busy, 9, 4, 10},
		"PUT":                {http.MethodPut, "", bytes.NewReader([]byte("x")), busy, 2, 3, 10},
		"a stream":           {http.MethodPut, "", io.MultiReader(strings.NewReader("x")), busy, 2, 1, 0},
		"POST":               {http.MethodPost, "", strings.NewReader("x"), busy, 2, 1, 0},
		"POST with a key":    {http.MethodPost, "Idempotency-Key", strings.NewReader("x"), busy, 2, 3, 10},
		"429 for no time":    {http.MethodGet, "", nil, respond(429, "Retry-After", "0"), 9, 4, 0},
		"until a time":       {http.MethodGet, "", nil, respond(429, "Retry-After", time.Unix(0, 0).UTC().Format(http.TimeFormat)), 9, 4, 0},
		"503 for no time":    {http.MethodGet, "", nil, respond(503, "Retry-After", "0"), 9, 4, 0},
		"503 without a time": {http.MethodGet, "", nil, respond(503), 9, 1, 0},
		"500":                {http.MethodGet, "", nil, respond(500, "Retry-After", "0"), 9, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := &api{}
			server.respond = func(r *http.Request, n int) *http.Response {
				if n < test.refusals {
					return &http.Response{StatusCode: test.res.StatusCode, Header: test.res.Header}
				}
				return respond(200)
			}
			cfg := httplimit.TransportConfig{Base: server, Retries: 3, Limits: []throttr.Limit{{Max: 1, Scale: time.Hour}}}
			withFleet(t, 1, cfg, func(t *testing.T, fl *fleet) {
				r, err := http.NewRequestWithContext(t.Context(), test.method, "http://api.test/", test.body)
				require.NoError(t, err)
				if test.field != "" {
					r.Header.Set(test.field, "1")
				}
				begun := time.Now()
				res, err := fl.transports[0].RoundTrip(r)
				require.NoError(t, err)
				require.Equal(t, test.tries > test.refusals, res.StatusCode == 200)
				require.Len(t, server.arrivals, test.tries)
				waited := float64(test.tries-1) * test.after
				require.InDelta(t, 1.05*waited, time.Since(begun).Seconds(), 0.055*waited, "it does not wait for itself")
				require.Equal(t, 1, server.open, "only that of the response")
				require.True(t, test.body == nil || server.sent.Load() == int64(test.tries), "the body is sent again")
				res.Body.Close()
				fl.got(t, 1)
				require.GreaterOrEqual(t, time.Since(begun), time.Hour, "it counts once")
			})
		})
	}
}

// A pause ends: after MaxPause, and the largest one is what the store can keep.
func TestTransportPausesForMaxPause(t *testing.T) {
	for most, want := range map[time.Duration]time.Duration{0: time.Hour, time.Minute: time.Minute, math.MaxInt64: 1 << 32 * time.Second} {
		cfg := httplimit.TransportConfig{Base: &api{}, MaxPause: most, Pause: func(*http.Response) time.Duration { return math.MaxInt64 }}
		withFleet(t, 1, cfg, func(t *testing.T, fl *fleet) {
			fl.got(t, 1)
			end := time.Now().Add(want)
			ctx, cancel := context.WithTimeout(t.Context(), want/2)
			defer cancel()
			_, err := fl.get(ctx)
			var late *throttr.DeadlineError
			require.ErrorAs(t, err, &late)
			require.WithinRange(t, late.At, end.Add(-time.Second), end.Add(2*time.Millisecond))
		})
	}
}

// roundTripper is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestIdleConnectionsAreThoseOfTheBase(t *testing.T) {
	server := &api{idle: true}
	for _, base := range []http.RoundTripper{roundTripper(nil), server} {
		transport, err := httplimit.NewTransport(throttr.NewRateLimit(memory.New()), httplimit.TransportConfig{Base: base})
		require.NoError(t, err)
		(&http.Client{Transport: transport}).CloseIdleConnections()
	}
	require.False(t, server.idle)
}

// What others return as a response may lack fields, and its body may stall.
func TestTransportAndResponsesOfOthers(t *testing.T) {
	for _, body := range []func() io.ReadCloser{
		func() io.ReadCloser { return nil },
		func() io.ReadCloser { r, _ := io.Pipe(); return r }, // it never ends by itself
	} {
		sent := 0
		cfg := httplimit.TransportConfig{Retries: 2, Base: roundTripper(func(*http.Request) (*http.Response, error) {
			sent++
			return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"10"}}, Body: body()}, nil
		})}
		withFleet(t, 1, cfg, func(t *testing.T, fl *fleet) {
			begun := time.Now()
			res, err := fl.get(t.Context())
			require.NoError(t, err)
			require.Equal(t, 429, res.StatusCode)
			require.Equal(t, 3, sent)
			require.GreaterOrEqual(t, time.Since(begun), 20*time.Second)
		})
	}
}

// A response that is returned counts, also if its request was to be sent again, and could not be.
func TestTransportCountsWhatItReturns(t *testing.T) {
	for name, test := range map[string]struct {
		retryAfter string
		body       error // of GetBody
	}{"no body": {"1", errors.New("no body")}, "too late": {"60", nil}} {
		t.Run(name, func(t *testing.T) {
			server := &api{respond: func(*http.Request, int) *http.Response { return respond(429, "Retry-After", test.retryAfter) }}
			cfg := httplimit.TransportConfig{Base: server, Retries: 1, Limits: []throttr.Limit{{Max: 3, Scale: time.Hour}},
				Cost:   func(_ *http.Request, l throttr.Limit) uint64 { return l.Max - 1 },
				Actual: func(*http.Response, throttr.Limit, uint64) uint64 { return 1 }}
			withFleet(t, 1, cfg, func(t *testing.T, fl *fleet) {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
				defer cancel()
				for n := 1; ; n++ {
					soon, cancel := context.WithTimeout(ctx, 30*time.Second)
					r, _ := http.NewRequestWithContext(soon, http.MethodPut, "http://api.test/", strings.NewReader("x"))
					r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), test.body }
					res, err := fl.transports[0].RoundTrip(r)
					cancel()
					if n == 3 {
						require.Error(t, err, "2 of 3 were counted")
						return
					}
					require.NoError(t, err)
					require.Equal(t, 429, res.StatusCode)
					text, err := io.ReadAll(res.Body)
					require.NoError(t, err)
					require.Equal(t, "hello", string(text))
					time.Sleep(2 * time.Minute)
				}
			})
		})
	}
}

// What could not be stored holds nothing back, so nothing is sent again.
func TestTransportSendsNothingAgainWithoutThePause(t *testing.T) {
	deaf := testkit.Hooked{Backend: memory.New(), Around: func(_ context.Context, call string, _ []throttr.Take, do func() error) error {
		if call == "charge" {
			return throttr.ErrUnavailable
		}
		return do()
	}}
	for name, instead := range map[string][]throttr.Option{
		"an error": nil, "a policy": {throttr.WithPolicy(throttr.AllowHits)}, "a fallback": {throttr.WithFallback(memory.New())},
	} {
		server := &api{respond: func(*http.Request, int) *http.Response { return respond(429, "Retry-After", "60") }}
		limiter := throttr.NewRateLimit(deaf, append(instead, throttr.WithLogger(nil))...)
		transport, err := httplimit.NewTransport(limiter, httplimit.TransportConfig{Base: server, Retries: 5})
		require.NoError(t, err)
		res, err := transport.RoundTrip(httptest.NewRequest(http.MethodGet, "http://api.test/", nil))
		require.NoError(t, err)
		res.Body.Close()
		require.Equal(t, 1, server.requests, name)
	}
}

// What net/http sends on a second connection counts again, and does not wait.
func TestTransportCountsWhatIsSentTwice(t *testing.T) {
	server := &api{twice: func(n int) bool { return n == 0 }}
	cfg := httplimit.TransportConfig{Base: server, Limits: []throttr.Limit{
		{Name: "tokens", Max: 100, Burst: 1, Scale: time.Second, Algorithm: throttr.TokenBucket},
		{Name: "requests", Max: 3, Scale: time.Second},
	}}
	withFleet(t, 1, cfg, func(t *testing.T, fl *fleet) {
		begun := time.Now()
		fl.got(t, 3)
		require.Len(t, server.arrivals, 4)
		require.Equal(t, begun, server.arrivals[1])
		require.WithinDuration(t, begun.Add(1050*time.Millisecond), server.arrivals[3], 20*time.Millisecond)
	})
}
