package redisbackend_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

func sum(key string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key))) }

func TestNamesInRedisAreAsDocumented(t *testing.T) {
	s := startServer(t)
	client := s.connect()
	for _, test := range []struct{ prefix, key, want string }{
		{"throttr:", "", "throttr:{k:}"},
		{"throttr:", "user:42", "throttr:{k:user:42}"},
		{"throttr:", "a\x00é\r\n", "throttr:{k:a\x00é\r\n}"},
		{"throttr:", "}", "throttr:{h:" + sum("}") + "}"},
		{"throttr:", strings.Repeat("k", 128), "throttr:{k:" + strings.Repeat("k", 128) + "}"},
		{"throttr:", strings.Repeat("k", 129), "throttr:{h:" + sum(strings.Repeat("k", 129)) + "}"},
		{"", "k", "{k:k}"},
		{"100% {a}", "k", "100%25 %7Ba}{k:k}"},
	} {
		b := redisbackend.New(client, rediswindow.WithPrefix(test.prefix))
		if got := nameOf(t, s, b, test.key); got != test.want+":v2" {
			t.Errorf("prefix %q, key %.20q: the name is %q, want %q", test.prefix, test.key, got, test.want)
		}
	}
}

func TestDifferentPrefixesAndKeysShareNoWindow(t *testing.T) {
	client := startServer(t).connect()
	prefixes := []string{"", "a", "a:", "a:{", "a:{k:", "a:%7B", "a:%7Bk:", "}", "{h:" + sum("}")}
	keys := []string{
		"", "a", "k:", "k:a", "h:", "h:" + sum("}"), sum("}"), "}", "{", "{}", "{a}", "}{", "{k:a}", "a}",
		strings.Repeat("k", 128), strings.Repeat("k", 129), "h:" + sum(strings.Repeat("k", 129)), "k:{k:a",
	}
	for _, prefix := range prefixes {
		b := redisbackend.New(client, rediswindow.WithPrefix(prefix))
		for _, key := range keys {
			for _, scale := range []time.Duration{time.Hour, 2 * time.Hour} {
				if w, err := b.Charge(t.Context(), key, limitOf(window.FixedWindow, scale, 10), 1); err != nil || w.Count != 1 {
					t.Errorf("prefix %q, key %.20q, scale %v: %+v, %v", prefix, key, scale, w, err)
				}
			}
		}
	}
}
