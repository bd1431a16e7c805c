// Package mocklimit finds the windows of rate limits on a mock server, for tests that look at the
// server rather than ask the RateLimit:
//
//	srv := mockserver.RunT(t)
//	backend, err := throttr.OpenServers(ctx, throttr.Config{Servers: []string{srv.Addr()}})
//	…
//	limiter := throttr.NewRateLimit(backend)
//	login := throttr.Limit{Name: "login", Max: 5, Scale: time.Hour}
//	limiter.Take(ctx, "user:42", login, 1)
//	w, ok := mocklimit.Window(srv, "user:42", login) // w.Count is 1
//
// The names of the records of a window, and what their numbers mean, are not part of the interface
// of this module.
package mocklimit

import (
	"cmp"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// Window returns the active window of a key and limit on srv, whichever client keeps it, and false
// if there is none. A limit without an algorithm is one of fixed windows. It counts no request.
func Window(srv *mockserver.Server, key string, l window.Limit) (w window.Window, ok bool) {
	each(srv, key, l, func(_ string, found window.Window) {
		if found.Count >= w.Count && found.Left > 0 {
			w, ok = found, true
		}
	})
	return w, ok
}

// Records returns the names of the records that srv has of a key and limit, also of windows that
// are over, sorted. They can be given to [mockserver.Server.Delete], or to a [mockserver.Fault] as
// its Key.
func Records(srv *mockserver.Server, key string, l window.Limit) []string {
	var names []string
	each(srv, key, l, func(name string, _ window.Window) { names = append(names, name) })
	return names
}

// each calls f for each record of a key and limit, with its window if that is active.
func each(srv *mockserver.Server, key string, l window.Limit, f func(name string, w window.Window)) {
	l.Algorithm = cmp.Or(l.Algorithm, window.FixedWindow)
	now := srv.Now()
	for _, name := range srv.Keys() {
		n, ok := fixedwindow.ParseName([]byte(name))
		quota, isCounter := srv.Counter(name)
		ttl, exists := srv.TTL(name)
		if !ok || !n.IsOf(key, l) || !isCounter || !exists {
			continue
		}
		if w, ours := n.Window(api.MaxValue(srv.ValueSize()), quota, ttl, now); ours {
			f(name, w)
		}
	}
}
