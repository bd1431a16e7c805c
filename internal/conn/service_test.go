package conn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServiceTimeIsWhatEachOfManyRequestsTakes(t *testing.T) {
	var s ServiceTime
	for range 10 {
		s.add(1, 100*time.Microsecond)
	}
	require.Zero(t, s.Get())
	for i := range samples / 4 {
		require.Zero(t, s.Get())
		s.add(3, time.Second) // neither one nor many
		s.add(64, 100*time.Microsecond+64*6*time.Microsecond)
		if i%4 == 0 {
			s.add(64, time.Second) // other clients are busy
		}
		if s.Get() != 0 {
			break
		}
	}
	require.Equal(t, 6*time.Microsecond, s.Get())
}

func TestServiceTimeThatHasGrownIsReportedOnce(t *testing.T) {
	var s ServiceTime
	fill := func(each time.Duration) {
		for range samples {
			s.add(100, 100*each)
		}
	}
	grown := func() bool { _, _, grown := s.HasGrown(); return grown }
	for _, each := range []time.Duration{10, 29, 8, 23} {
		fill(each * time.Microsecond)
		require.False(t, grown(), each)
	}
	fill(24 * time.Microsecond)
	first, now, ok := s.HasGrown()
	require.True(t, ok)
	require.Equal(t, []time.Duration{8 * time.Microsecond, 24 * time.Microsecond}, []time.Duration{first, now})
	require.False(t, grown())

	s.Forget()
	require.Zero(t, s.Get())
	fill(time.Microsecond)
	require.False(t, grown())
	fill(19 * time.Microsecond)
	require.False(t, grown(), "that is no long time")
	fill(20 * time.Microsecond)
	require.True(t, grown())
}

func TestOneInSixteenWritesIsTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var service ServiceTime
		s := sampler{service: &service}
		for range 2 * sampleEvery {
			s.wrote(20)
			time.Sleep(10 * time.Microsecond)
			if s.requests > 0 {
				s.wrote(40) // another write is not timed meanwhile
			}
			s.received(19)
			time.Sleep(10 * time.Microsecond)
			s.received(1)
		}
		require.Equal(t, 2, service.each.n)
		require.Equal(t, time.Microsecond, service.each.all[0])
	})
}
