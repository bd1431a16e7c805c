package throttr

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
)

// Each field of a response is in the field of its name, or is one of others.
func TestInspectionsHaveTheFieldsOfResponses(t *testing.T) {
	list := conn.Record{Key: []byte("k"), Buffer: true}
	connection := codec.ConnectionInfo{IP: "127.0.0.1"}
	channel := codec.ChannelsEntry{Name: []byte("c")}
	var info codec.InfoResponse
	var stats codec.StatsEntry
	var subscribed codec.Subscriber
	n := uint64(0)
	for _, of := range []any{&list, &connection, &channel, &info, &stats, &subscribed} {
		number(reflect.ValueOf(of).Elem(), &n)
	}
	for _, test := range []struct {
		response, inspected any
		others              []string
	}{
		{info, serverInfo("a:1", info), []string{"Timestamp", "RunningSince"}},
		{stats, keyStatsEntry("a:1", stats), []string{"Key", "Usage"}},
		{list, listEntry("a:1", list), []string{"Key", "Buffer", "Expires", "Bytes"}},
		{connection, connectionEntry("a:1", connection), []string{"Transport", "IPVersion", "IP", "Port", "Connected"}},
		{channel, channelEntry("a:1", channel), []string{"Name"}},
		{subscribed, subscriber("a:1", subscribed), []string{"Since"}},
	} {
		want, got := reflect.ValueOf(test.response), reflect.ValueOf(test.inspected)
		require.Equal(t, "a:1", got.FieldByName("Server").String())
		var others []string
		for i := range want.NumField() {
			name := want.Type().Field(i).Name
			if f := got.FieldByName(name); f.IsValid() && f.Type() == want.Field(i).Type() {
				require.Equal(t, want.Field(i).Interface(), f.Interface(), name)
			} else {
				others = append(others, name)
			}
		}
		require.Equal(t, test.others, others, "%T", test.response)
	}
	at := func(ns uint64) time.Time { return time.Unix(0, int64(ns)).UTC() }
	require.Equal(t, time.Unix(int64(info.Timestamp), 0).UTC(), serverInfo("", info).Time)
	require.Equal(t, at(info.RunningSince), serverInfo("", info).RunningSince)
	require.Equal(t, stats.Usage, codec.Usage(keyStatsEntry("", stats).Usage))
	record := listEntry("", list)
	require.Equal(t, []any{"k", "buffer", at(list.Expires), uint64(list.Bytes)}, []any{record.Key, record.Kind.String(), record.ExpiresAt, record.BytesUsed})
	c := connectionEntry("", connection)
	require.Equal(t, []any{connection.Transport, "127.0.0.1", connection.Port, at(connection.Connected)}, []any{c.Kind, c.Addr.Addr().String(), c.Addr.Port(), c.ConnectedAt})
	require.Equal(t, "c", channelEntry("", channel).Name)
	require.Equal(t, at(subscribed.Since), subscriber("", subscribed).Since)
}

// number gives each number in v another value.
func number(v reflect.Value, n *uint64) {
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			number(v.Field(i), n)
		}
	case v.CanUint():
		*n++
		v.SetUint(*n)
	}
}
