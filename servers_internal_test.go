package throttr

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/pool"
)

// What the fields of a Config mean is tested where they are used. Each of them arrives there.
func TestPoolsAndSubscriptionsHaveTheFieldsOfAConfig(t *testing.T) {
	cfg := Config{Logger: slog.New(slog.DiscardHandler), Parking: ParkingAlways}
	fields := reflect.ValueOf(&cfg).Elem()
	for i := range fields.NumField() {
		switch f := fields.Field(i); f.Kind() {
		case reflect.Int:
			f.SetInt(int64(i + 1))
		case reflect.Int64:
			f.SetInt(int64(i+1) * int64(time.Hour))
		}
	}
	o := poolOptions("s:1", cfg, new(conn.Calls))
	require.Equal(t, cfg.ConnectTimeout, o.Dialer.Timeout)
	p, err := pool.New(o)
	require.NoError(t, err)
	defer p.Close()
	for _, options := range []any{o, subscriptionOptions("s:1", cfg, p)} {
		got := reflect.ValueOf(options)
		for i := range got.NumField() {
			name := got.Type().Field(i).Name
			require.False(t, got.Field(i).IsZero(), name)
			if of := fields.FieldByName(name); of.IsValid() && of.CanInt() {
				require.Equal(t, of.Int(), got.Field(i).Int(), name)
			}
		}
	}
}
