package redisclient_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/window"
)

func TestNothingThatAReplyQuotesIsShown(t *testing.T) {
	for reply, want := range map[string]string{
		"ERR unknown command 'EVALSHA', with args beginning with: 'ab' '1' 'throttr:{k:zoe}' ":  "ERR unknown command 'EVALSHA', …",
		"ERR unknown command `EVALSHA`, with args beginning with: `ab`, `1`, `throttr:{k:zoe}`": "ERR unknown command `EVALSHA`, …",
		"ERR unsupported command 'zoe'":                         "ERR unsupported command …",
		"ERR unsupported command 'ZOE'":                         "ERR unsupported command …",
		"ERR bad value \"zoe\" of 'eval'":                       "ERR bad value …",
		"CROSSSLOT Keys in request don't hash to the same slot": "CROSSSLOT Keys in request don't hash to the same slot",
		"ERR 'eval": "ERR …",
		"NOPERM this user has no permissions to run the 'evalsha' command":    "NOPERM this user has no permissions to run the 'evalsha' command",
		"NOPERM User zoe has no permissions to run the 'client|list' command": "NOPERM; the rest of the reply repeats the request",
		"zoe is unknown":          "a reply; the rest of the reply repeats the request",
		"Zoe, or zoe, is unknown": "a reply; the rest of the reply repeats the request",
		"WRONGPASS invalid username-password pair or user is disabled.": "WRONGPASS invalid username-password pair or user is disabled.",
		"NOAUTH Authentication required.":                               "NOAUTH Authentication required.",
	} {
		err := redisclient.ReplyError(errors.New(reply), "zoe", "")
		require.ErrorIs(t, err, window.ErrUnavailable)
		require.EqualError(t, err, "throttr: the store is unavailable: "+want)
	}
}

// A reply that nobody knows is about the server. A user who may not run a command may have run others of the script: it
// must not be sent again.
func TestWhatAReplyIsAbout(t *testing.T) {
	for about, replies := range map[redisclient.Subject][]string{
		redisclient.Server: {
			"LOADING x", "CLUSTERDOWN x", "MASTERDOWN x", "TRYAGAIN x", "BUSY x", "MISCONF x", "NOREPLICAS x", "NOAUTH x", "WRONGPASS x",
			"MOVED 1 127.0.0.1:2", "DENIED Redis is running in protected mode", "ERR max daily request limit exceeded", "ERR unknown command 'EVAL'", "?",
			"NOPERM this user has no permissions to run the 'eval' command", "ERR The user executing the script can't run this command or subcommand",
			"ERR The user executing the script can't run this command or subcommand script: 1f, on @user_script:3.",
			"user_script:1: Script attempted to access nonexistent global variable 'struct' script: 1f, on @user_script:1.",
			"NOPERM User zoe has no permissions to run the 'hscan' command script: 1f, on @user_script:3.",
			"NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
		},
		redisclient.Memory: {"OOM command not allowed when used memory > 'maxmemory'.", "ERR Error running script: @user_script:7: -OOM command not allowed"},
		redisclient.Role: {
			"READONLY You can't write against a read only replica.",
			"ERR Error running script: @user_script:9: -READONLY You can't write against a read only replica.",
		},
		redisclient.Access: {
			"NOPERM User zoe has no permissions to access the 'k' key script: 1f, on @user_script:3.",
			"NOPERM this user has no permissions to access one of the keys used as arguments script: 1f, on @user_script:3.",
		},
		redisclient.Value: {
			"WRONGTYPE Operation against a key holding the wrong kind of value",
			"user_script:138: bad argument #2 to unpack (string expected, got boolean) script: 1f, on @user_script:138.",
			"ERR Error running script (call to f_1f): @user_script:138: user_script:138: bad argument #2 to unpack (string expected, got boolean)",
		},
		redisclient.Slots: {"CROSSSLOT Keys in request don't hash to the same slot"},
		redisclient.Keys: {
			"NOPERM No permissions to access a key",
			"NOPERM this user has no permissions to access one of the keys used as arguments",
		},
	} {
		for _, reply := range replies {
			cause := errors.New(reply)
			err := redisclient.ReplyError(cause)
			require.ErrorIs(t, err, cause)
			require.Equal(t, about, redisclient.About(err), reply)
			require.Equal(t, about, redisclient.About(cause), reply)
			require.Equal(t, about == redisclient.Slots || about == redisclient.Keys, redisclient.AboutSome(err), reply)
			aboutKey := about == redisclient.Access || about == redisclient.Value || about == redisclient.Keys
			require.Equal(t, !aboutKey, errors.Is(err, window.ErrUnavailable), reply)
			require.Equal(t, aboutKey, err.Error() == reply, reply)
			require.Equal(t, about == redisclient.Memory, errors.Is(err, window.ErrFull), reply)
		}
	}
	require.False(t, redisclient.AboutSome(nil))
}

func TestErrorsThatAreNoReplyAreReturnedAsTheyAre(t *testing.T) {
	for _, err := range []error{nil, context.Canceled, context.DeadlineExceeded, fmt.Errorf("%w: 'x'", window.ErrClosed), fmt.Errorf("%w: 'x'", window.ErrUnavailable)} {
		require.Equal(t, err, redisclient.ReplyError(err))
	}
}
