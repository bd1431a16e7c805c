package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/didip/tollbooth/v7"
	toll "github.com/didip/tollbooth/v7/limiter"
	"github.com/go-chi/httprate"
	"github.com/ulule/limiter/v3"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/internal/tools/load"
)

// The middleware is called with a request and a ResponseWriter that discards what it gets, so no connection is
// part of the time. The key of a request is its remote address.
var (
	emptyMiddleware = middleware("none", "", "a handler that is called without middleware",
		func(setup, http.Handler) (http.Handler, func(), error) { return nil, nil, nil })
	oneLimit     = ourMiddleware("httplimit", 1, httplimit.Config{}, "one limit; RateLimit and RateLimit-Policy; the decision is in the request's context and can be given back")
	noFields     = ourMiddleware("httplimit, no fields", 1, httplimit.Config{HideFields: true}, "the same without header fields")
	twoLimits    = ourMiddleware("httplimit, two limits", 2, httplimit.Config{}, "two limits, all or none")
	fourLimits   = ourMiddleware("httplimit, four limits", 4, httplimit.Config{}, "four limits, all or none")
	httprateIP   = middleware("httprate", "github.com/go-chi/httprate", "`LimitByIP`: a sliding window of two counters; three X-RateLimit fields", httprateHandler)
	ululeHandler = middleware("ulule/limiter, stdlib", "github.com/ulule/limiter/v3", "its middleware for net/http: a fixed window; three X-RateLimit fields", newUluleHandler)
	tollboothIP  = middleware("tollbooth", "github.com/didip/tollbooth/v7", "`LimitHandler` by RemoteAddr: a token bucket; four header fields", tollboothHandler)

	middlewares = workload{"HTTP middleware", []contender{
		emptyMiddleware, oneLimit, noFields, twoLimits, fourLimits, httprateIP, ululeHandler, tollboothIP,
	}}
)

// middlewareLoads are the loads with which middleware is measured.
var middlewareLoads = []struct{ keys, goroutines int }{{1, 1}, {fewKeys, 2}}

// discard is a ResponseWriter that keeps the status only.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

// exchange is a request and where its response goes.
type exchange struct {
	r http.Request
	w discard
}

// middleware returns a contender that wraps a handler. A nil handler is none.
func middleware(name, module, does string, wrap func(s setup, next http.Handler) (http.Handler, func(), error)) contender {
	return contender{name: name, module: module, does: does, start: func(_ context.Context, s setup) (*instance, error) {
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		h, closes, err := wrap(s, next)
		if err != nil {
			return nil, err
		}
		if h == nil {
			h = next
		}
		addrs := map[string]string{} // of all keys: only read once it is made
		keys := keySet(s.keys).Keys()
		for i := range keys.Len() {
			addrs[keys.At(i)] = addrOf(keys.At(i))
		}
		exchanges := sync.Pool{New: func() any {
			return &exchange{
				r: http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Header: http.Header{}},
				w: discard{header: http.Header{}},
			}
		}}
		return &instance{
			do: func(_ context.Context, key string) (bool, error) {
				x := exchanges.Get().(*exchange)
				defer exchanges.Put(x)
				var ok bool
				if x.r.RemoteAddr, ok = addrs[key]; !ok {
					x.r.RemoteAddr = addrOf(key)
				}
				clear(x.w.header)
				x.w.status = http.StatusOK
				h.ServeHTTP(&x.w, &x.r)
				if x.w.status != http.StatusOK && x.w.status != http.StatusTooManyRequests {
					return false, fmt.Errorf("status %d", x.w.status)
				}
				return x.w.status == http.StatusOK, nil
			},
			close: closes,
		}, nil
	}}
}

// addrOf returns a remote address for a key.
func addrOf(key string) string {
	h := fnv.New32a()
	io.WriteString(h, key)
	sum := h.Sum32()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(sum >> 16), byte(sum >> 8), byte(sum)}), 4711).String()
}

// ourMiddleware returns httplimit with n limits in memory.
func ourMiddleware(name string, n int, cfg httplimit.Config, does string) contender {
	return middleware(name, "", does, func(s setup, next http.Handler) (http.Handler, func(), error) {
		backend := newMemory(s)
		for i := range n {
			cfg.Limits = append(cfg.Limits[:i:i], throttr.Limit{Name: fmt.Sprint("limit ", i+1), Max: uint64(s.limit), Scale: s.scale + time.Duration(i)*time.Hour})
		}
		limit, err := httplimit.New(throttr.NewRateLimit(backend), cfg)
		if err != nil {
			backend.Close()
			return nil, nil, err
		}
		return limit(next), func() { backend.Close() }, nil
	})
}

func httprateHandler(s setup, next http.Handler) (http.Handler, func(), error) {
	return httprate.LimitBy(s.limit, s.scale, func(r *http.Request) (string, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		return host, err
	})(next), nil, nil
}

func newUluleHandler(s setup, next http.Handler) (http.Handler, func(), error) {
	l := limiter.New(ululememory.NewStore(), limiter.Rate{Period: s.scale, Limit: int64(s.limit)})
	return ululehttp.NewMiddleware(l).Handler(next), nil, nil
}

func tollboothHandler(s setup, next http.Handler) (http.Handler, func(), error) {
	l := tollbooth.NewLimiter(float64(s.limit)/s.scale.Seconds(), &toll.ExpirableOptions{DefaultExpirationTTL: s.scale})
	l.SetBurst(s.limit).SetIPLookups([]string{"RemoteAddr"})
	return tollbooth.LimitHandler(l, next), nil, nil
}

// middlewareRequirements returns what httplimit must hold.
func (r *results) middlewareRequirements() (all []requirement) {
	of := func(c contender, at int) measurement {
		return measurement{middlewares.name, c.name, middlewareLoads[at].keys, middlewareLoads[at].goroutines}
	}
	for at, l := range middlewareLoads {
		all = append(all, atMost(fmt.Sprintf("`httplimit`, memory, one limit, %s, %s ÷ httprate: time", plural(l.keys, "key"), plural(l.goroutines, "goroutine")), 0.5,
			r.quotients(perSecond, of(httprateIP, at), of(oneLimit, at))))
	}
	// The copy of the request, whose context has the decision, and the key in the backend. Field values are a part of these.
	return append(all,
		atMost("`httplimit`, memory, one limit: allocations per request", 2, hundredths(r.each(of(oneLimit, 0), allocs))))
}

// reportMiddlewares writes what middleware takes of a request.
func (r *results) reportMiddlewares(w io.Writer) {
	titles, all := r.timeRows(middlewares, "middleware", middlewareLoads)
	for i, c := range middlewares.contenders {
		m := measurement{middlewares.name, c.name, middlewareLoads[0].keys, middlewareLoads[0].goroutines}
		all[i] = append(all[i], fmt.Sprintf("%.1f", load.Median(r.each(m, allocs))))
	}
	rows(w, append(titles, ">allocations/request"), all)
	fmt.Fprint(w, `
The times are those of a request that is served, without a connection: the middleware is called with a request, and the
header fields that it sets are discarded.
`)
}
