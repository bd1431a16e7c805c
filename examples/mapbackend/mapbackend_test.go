package mapbackend_test

import (
	"testing"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/examples/mapbackend"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Subject {
		clock := backendtest.NewClock()
		return backendtest.Subject{
			Backend: mapbackend.New(clock.Now), Clock: clock,
			Without: map[string]string{
				"List": "not yet", "Exchange": "no places in flight", "ListPlaces": "there are none",
			},
		}
	})
}
