package postgresbackend_test

import (
	"testing"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/postgresbackend"
)

func TestConformance(t *testing.T) {
	s := testkit.StartPostgres(t)
	one, other := connect(t, s), connect(t, s)
	for _, a := range limits.Algorithms {
		subject := backendtest.Subject{
			Algorithm: a, Without: map[string]string{"Exchange": "no places in flight", "ListPlaces": "there are none"},
		}
		t.Run(a.String(), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				s, clock := subject, backendtest.NewClock()
				opts := newTable(t, one, postgresbackend.WithClock(clock.Now), postgresbackend.Patient)
				s.Clock = clock
				s.Backend = postgresbackend.New(one, opts...)
				s.Second = postgresbackend.New(other, opts...)
				return s
			})
		})
	}
}
