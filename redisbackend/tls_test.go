package redisbackend_test

import (
	"crypto/tls"
	"testing"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

func TestClientWithAPrivateCAAndACertificate(t *testing.T) {
	testkit.WithTLSConfig(t, func(addr string, config *tls.Config) (window.Backend, error) {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, TLSConfig: config, DisableCache: true})
		if err != nil {
			return nil, err
		}
		t.Cleanup(client.Close)
		return redisbackend.New(client), nil
	})
}

func TestURLWithTLSTrustsTheCAsOfTheSystem(t *testing.T) {
	testkit.ByTLSURL(t, "rediss", func(url string) (window.BackendCloser, error) { return throttr.Open(t.Context(), url) })
}
