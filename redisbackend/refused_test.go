package redisbackend_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// Open runs the script, so what can't run it is no store.
func TestOpenRefusesAServerThatCanNotRunTheScript(t *testing.T) {
	primary := testkit.StartRedis(t)
	replica := testkit.StartRedis(t)
	replica.Must(t, "REPLICAOF", "127.0.0.1", primary.Port)
	limited := testkit.StartRedis(t)
	limited.Must(t, "ACL", "SETUSER", "limits", "on", ">pw", "+@all", "~other:*")
	for url, want := range map[string]string{
		"redis://" + testkit.StartSentinel(t, primary).Addr:                        "EVAL",
		"redis://" + testkit.StartRedis(t, "--rename-command", "EVALSHA", "").Addr: "EVALSHA",
		"redis://" + replica.Addr:                                                  "READONLY",
		"redis://limits:pw@" + limited.Addr:                                        "NOPERM",
	} {
		b, err := throttr.Open(t.Context(), url)
		if err == nil {
			b.Close()
		}
		expect(t, err != nil && strings.Contains(err.Error(), want), "%s: %v, want %s", url, err, want)
	}
	b, err := throttr.Open(t.Context(), "redis://limits:pw@"+limited.Addr+"?prefix=other:")
	noError(t, err)
	b.Close()
	for _, s := range []*testkit.Redis{primary, limited} {
		size, err := s.Do("DBSIZE")
		expect(t, err == nil && size == "0", "Open has written: %s, %v", size, err)
	}
}

// What a user may not access is an error of that key, and not of those that share its request.
func TestAKeyThatTheUserMayNotAccessFailsAlone(t *testing.T) {
	s := testkit.StartRedis(t)
	client := connect(t, s)
	redis(t, client, "ACL", "SETUSER", "default", "resetkeys", "~throttr:{k:good*")
	b := redisbackend.New(client)
	windows, errs := hitTogether(t, s, b, 20, "good", "bad", "good too")
	for i, want := range []int{0, 20, 0} {
		expect(t, len(errs[i]) == want, "%d hits have failed, want %d: %v", len(errs[i]), want, errs[i])
		for _, err := range errs[i] {
			expect(t, strings.Contains(err.Error(), "NOPERM") && !errors.Is(err, window.ErrUnavailable), "%v", err)
		}
	}
	requireDistinct(t, windows[0], 20)
}
