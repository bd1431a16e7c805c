package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

var tokens = throttr.Limit{Name: "tokens", Max: 1000, Scale: time.Minute}

// counts returns what the limits of a request have counted.
func counts(t *testing.T, g *admission.Gate, r admission.Request) (all []uint64) {
	t.Helper()
	outcomes, err := g.Peek(t.Context(), r)
	require.NoError(t, err)
	for _, o := range outcomes {
		all = append(all, o.Count)
	}
	return all
}

// What a limit is charged may be known only when the response is there.
func TestCommitSetsWhatALimitIsCharged(t *testing.T) {
	type step = func(d *admission.Decision) error
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	commit := func(name string, n uint64) step {
		return func(d *admission.Decision) error { return d.Commit(ctx, name, n) }
	}
	use := func(n uint64) step { return commit("tokens", n) }
	back := func(d *admission.Decision) error { return d.GiveBack(ctx) }
	later := func(d *admission.Decision) error { d.GiveBackLater(); return nil }
	over := false
	done := func(d *admission.Decision) error { over = true; d.Done(); return nil }
	end := func(*admission.Decision) error { cancel(); return nil }
	for name, test := range map[string]struct {
		minute, tokens uint64 // the costs
		hits           bool
		steps          []step // err is that of the last one
		err            error
		want           []uint64
	}{
		"less":              {minute: 1, tokens: 100, steps: []step{use(7)}, want: []uint64{1, 7}},
		"more":              {minute: 1, tokens: 100, steps: []step{use(2000)}, want: []uint64{1, 2000}},
		"the last says":     {minute: 1, tokens: 100, steps: []step{use(7), use(8)}, want: []uint64{1, 8}},
		"both":              {minute: 2, tokens: 100, steps: []step{use(7), commit("minute", 0)}, want: []uint64{0, 7}},
		"of 0":              {minute: 1, steps: []step{use(7)}, err: throttr.ErrConfig, want: []uint64{1, 0}},
		"after Done":        {minute: 1, tokens: 100, steps: []step{done, use(7)}, want: []uint64{1, 7}},
		"later":             {minute: 1, tokens: 100, steps: []step{use(7), done, use(9)}, want: []uint64{1, 9}},
		"later, less":       {minute: 1, tokens: 100, steps: []step{use(7), done, use(6)}, err: throttr.ErrUnsupported, want: []uint64{1, 7}},
		"later, back, more": {minute: 1, tokens: 100, steps: []step{use(7), done, back, use(9)}, want: []uint64{1, 9}},
		"no limit":          {minute: 1, tokens: 100, steps: []step{commit("x", 7)}, err: throttr.ErrConfig, want: []uint64{1, 100}},
		"out of range":      {minute: 1, tokens: 100, steps: []step{use(1 << 63)}, err: throttr.ErrRange, want: []uint64{1, 100}},
		"denied":            {minute: 9, tokens: 100, steps: []step{use(7)}, err: throttr.ErrConfig, want: []uint64{0, 0}},
		"hits, more":        {minute: 1, tokens: 100, hits: true, steps: []step{use(107)}, want: []uint64{1, 107}},
		"hits, less":        {minute: 1, tokens: 100, hits: true, steps: []step{use(7)}, err: throttr.ErrUnsupported, want: []uint64{1, 100}},
		"hits, back":        {minute: 1, tokens: 100, hits: true, steps: []step{back}, err: throttr.ErrUnsupported, want: []uint64{1, 100}},
		"given back":        {minute: 1, tokens: 100, steps: []step{use(7), back}, want: []uint64{0, 0}},
		"back, and more":    {minute: 1, tokens: 100, steps: []step{back, use(150)}, want: []uint64{0, 150}},
		"back, and less":    {minute: 1, tokens: 100, steps: []step{use(7), later, done, use(50)}, want: []uint64{0, 50}},
		"in the end":        {minute: 1, tokens: 100, steps: []step{end, back}, want: []uint64{0, 0}},
		"twice":             {minute: 1, tokens: 100, steps: []step{back, back}, want: []uint64{0, 0}},
	} {
		testkit.Bubble(t, name, func(t *testing.T) { // GiveBackLater does not wait for long
			gate := newGate(t, admission.Config{Limits: []throttr.Limit{minute, tokens}, CountRefusals: test.hits})
			d := gate.Admit(t.Context(), costs(map[string]uint64{"minute": test.minute, "tokens": test.tokens}))
			over = false
			var err error
			for _, step := range test.steps {
				err = step(d)
			}
			require.ErrorIs(t, err, test.err)
			if !over { // otherwise, each Commit is settled at once
				d.Done()
				d.Done()
			}
			require.Equal(t, test.want, counts(t, gate, request("k")))
		})
	}
}

// failingWhile returns a store whose calls fail with err while it is away.
func failingWhile(away *atomic.Bool, b throttr.Backend, err error) throttr.Backend {
	return testkit.Hooked{Backend: b, Around: func(_ context.Context, _ string, _ []window.Take, do func() error) error {
		if away.Load() {
			return err
		}
		return do()
	}}
}

// What the store has not counted, because it failed or a policy has answered, is counted by a later Commit, and a Commit
// that has failed can be repeated.
func TestCommitsCountWhatTheStoreHasNot(t *testing.T) {
	for name, test := range map[string]struct {
		policy        throttr.Policy
		admit, commit bool // the store is away then, of commits for the first one
		late          bool // commits come after Done
	}{
		"nothing failed":           {},
		"uncounted":                {admit: true},
		"uncounted, by a policy":   {policy: throttr.AllowHits, admit: true},
		"repeated":                 {late: true, commit: true},
		"repeated, by a policy":    {policy: throttr.AllowHits, admit: true, commit: true},
		"neither, after a failure": {admit: true, commit: true},
	} {
		for _, hits := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", hits), func(t *testing.T) {
				var away atomic.Bool
				cfg := admission.Config{Limits: []throttr.Limit{tokens}, CountRefusals: hits}
				gate := newGateOn(t, failingWhile(&away, memory.New(), errDown), cfg,
					throttr.WithPolicy(test.policy), throttr.WithLogger(nil))
				away.Store(test.admit)
				d := gate.Admit(t.Context(), request("k"))
				require.True(t, d.Allowed)
				if test.late {
					d.Done()
				}
				away.Store(test.commit)
				err := d.Commit(t.Context(), "tokens", 60)
				require.Equal(t, test.commit && test.policy == throttr.ReturnError, err != nil, err)
				away.Store(false)
				require.NoError(t, d.Commit(t.Context(), "tokens", 60))
				d.Done()
				require.Equal(t, []uint64{60}, counts(t, gate, request("k")))
			})
		}
	}
}

// A panic where no program could recover from it is logged, and giving back goes on.
func TestAPanicInTheBackgroundIsLogged(t *testing.T) {
	var text strings.Builder
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, admission.Config{}, throttr.WithObserver(func(_ context.Context, e throttr.Event) {
			if e.Kind == throttr.EventSettled {
				panic("an observer")
			}
		}))
		for range 1100 { // more than can wait at a time
			d := gate.Admit(t.Context(), request("k"))
			require.True(t, d.Allowed)
			require.True(t, d.GiveBackLater())
			synctest.Wait()
		}
	})
	require.Contains(t, text.String(), `panic="an observer"`)
	require.Contains(t, text.String(), "admission_test.TestAPanic")
}

// However many try at one time, a request is given back once.
func TestARequestIsGivenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, admission.Config{Limits: []throttr.Limit{minute, tokens}})
		d := gate.Admit(t.Context(), request("k"))
		gate.Admit(t.Context(), request("k"))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				found, _ := admission.FromContext(d.Context())
				if found.GiveBack(t.Context()) != nil || !d.GiveBackLater() {
					t.Error("it can't be given back")
				}
			})
		}
		all.Wait()
		require.Equal(t, []uint64{1, 1}, counts(t, gate, request("k")))
	})
}

// What is given back in the background is bounded, and delays nobody for long.
func TestGivingBackIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		store := testkit.Hooked{Backend: memory.New(memory.WithCleanPeriod(0)),
			Around: func(_ context.Context, call string, _ []window.Take, do func() error) error {
				if call == "give back" {
					<-stuck
				}
				return do()
			}}
		gate := newGateOn(t, store, admission.Config{Limits: []throttr.Limit{{Name: "a", Max: 10_000, Scale: time.Hour}}},
			throttr.WithTimeout(time.Hour))
		queued, refused := 0, 0
		begun := time.Now()
		for range 2000 {
			if gate.Admit(t.Context(), request("k")).GiveBackLater() {
				queued++
			} else {
				refused++
			}
		}
		require.Equal(t, 1024, queued)
		require.Equal(t, time.Duration(queued)*2*time.Millisecond, time.Since(begun))
		d := gate.Admit(t.Context(), request("k"))
		require.NoError(t, d.Commit(t.Context(), "a", 3))
		require.False(t, d.GiveBackLater())
		d.Done()
		refused += 3
		close(stuck)
		synctest.Wait()
		require.Equal(t, []uint64{uint64(refused)}, counts(t, gate, request("k")))
		for range 2000 {
			again := gate.Admit(t.Context(), request("k"))
			require.True(t, again.GiveBackLater(), "it goes on")
			require.True(t, again.GiveBackLater(), "it is done already")
		}
		require.Equal(t, []uint64{uint64(refused)}, counts(t, gate, request("k")))
	})
}

// A request to which no limit applies has no decision, and is counted and denied nowhere.
func TestARequestWithoutLimitsIsExempt(t *testing.T) {
	places := newPlaces(t, memory.New())
	left := request("k")
	left.Keys = map[string]admission.Key{"minute": {}, "exports": {}}
	for name, test := range map[string]struct {
		cfg     admission.Config
		request admission.Request
	}{
		"an empty plan":  {admission.Config{InFlight: exports, Places: places}, planned("k", new(admission.Plan))},
		"left out":       {admission.Config{InFlight: exports, Places: places}, left},
		"an empty key":   {admission.Config{SkipEmptyKey: true, InFlight: exports, Places: places}, request("")},
		"nothing by now": {admission.Config{Limits: []throttr.Limit{}, OnlyPlans: true}, request("k")},
	} {
		gate := newGate(t, test.cfg)
		for range 5 {
			d := gate.Admit(t.Context(), test.request)
			require.Equal(t, admission.Serve, d.Verdict(), name)
			require.Empty(t, d.PolicyField()+d.LimitField()+d.RetryAfterField())
			require.Equal(t, t.Context(), d.Context())
			_, found := admission.FromContext(d.Context())
			require.False(t, found, name)
			require.ErrorIs(t, d.Commit(t.Context(), "minute", 1), throttr.ErrConfig)
			require.NoError(t, d.GiveBack(t.Context()))
		}
		outcomes, err := gate.Peek(t.Context(), test.request)
		require.NoError(t, err)
		require.Empty(t, outcomes, name)
	}
}

// Each limit has its own key, and so has that on requests in flight.
func TestLimitsHaveKeysOfTheirOwn(t *testing.T) {
	gate := newGate(t, admission.Config{
		Limits:   []throttr.Limit{minute, {Name: "hour", Max: 4, Scale: time.Hour}},
		InFlight: exports, Places: newPlaces(t, memory.New()),
	})
	of := func(address, tenant, flight string) admission.Request {
		return admission.Request{Addr: address, Keys: map[string]admission.Key{"hour": {Text: tenant}, "exports": {Text: flight}}}
	}
	var keys []string
	for _, r := range []admission.Request{of("a", "t", ""), of("b", "t", "f"), of("b", "t", ""), of("b", "", "f"), of("b", "t", "g")} {
		d := gate.Admit(t.Context(), r)
		key := d.Verdict().String()
		for _, o := range d.Outcomes {
			key += " " + o.Name + ":" + o.Key
		}
		keys = append(keys, key)
	}
	require.Equal(t, []string{
		"serve minute:a hour:t", "serve minute:b hour:t", "serve minute:b hour:t", "deny", "serve minute:b hour:t",
	}, keys)
	d := gate.Admit(t.Context(), of("b", "u", ""))
	require.Equal(t, []string{"minute"}, names(d))
	require.Equal(t, []uint64{0}, counts(t, gate, of("x", "u", ""))[1:], "what one limit denies counts in no other")
	require.NoError(t, gate.Reset(t.Context(), of("b", "", "")))
	require.Equal(t, []uint64{0, 4}, counts(t, gate, of("b", "t", "")))
}

// An outcome says which limit has decided, and on whom, as far as that may be told.
func TestOutcomesNameTheirLimit(t *testing.T) {
	gate := newGate(t, admission.Config{InFlight: exports, Places: newPlaces(t, memory.New())})
	client := admission.Request{Addr: "192.0.2.1"}
	first := gate.Admit(t.Context(), client).Outcomes[0]
	require.Equal(t, "minute: allowed, 1 of 3, 2 remaining", fmt.Sprintf("%+v", first))
	require.NoError(t, first.Err())
	require.Equal(t, "3 in 1m0s", first.Quota())
	require.ErrorIs(t, new(admission.Outcome).Err(), throttr.ErrRateLimited)
	never := gate.Admit(t.Context(), costing("key", 4)).Strictest
	require.ErrorIs(t, never.Err(), throttr.ErrRateLimited)
	require.EqualError(t, never.Err(), `throttr: rate limit exceeded: key "LHDhK3oGRvkiefQn": minute: 3 in 1m0s; never granted`)

	first.ResetAt = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	first.ResetAfter = 1500 * time.Millisecond
	for want, outcome := range map[string]admission.Outcome{
		`{"name":"minute","key":"192.0.2.1","scale":60,"allowed":true,"count":1,"limit":3,"remaining":2,` +
			`"reset_after":1.5,"reset_at":"2030-01-02T03:04:05Z"}`: first,
		`{"name":"exports","key":"192.0.2.1","allowed":false,"count":1,"limit":1,"remaining":0,"retry_after":1}`:  gate.Admit(t.Context(), client).Strictest,
		`{"name":"minute","key":"LHDhK3oGRvkiefQn","scale":60,"allowed":false,"count":0,"limit":3,"remaining":0}`: never,
	} {
		text, err := json.Marshal(outcome)
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
}
