package goredis_test

import (
	"crypto/tls"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend/goredis"
	"github.com/throttr-go/throttr/window"
)

func TestClientWithAPrivateCAAndACertificate(t *testing.T) {
	testkit.WithTLSConfig(t, func(addr string, config *tls.Config) (window.Backend, error) {
		client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{addr}, TLSConfig: config, DialerRetries: 1})
		t.Cleanup(func() { client.Close() })
		return goredis.New(client), nil
	})
}

func TestURLWithTLSTrustsTheCAsOfTheSystem(t *testing.T) {
	testkit.ByTLSURL(t, "goredis+tls", func(url string) (window.BackendCloser, error) { return throttr.Open(t.Context(), url) })
}
