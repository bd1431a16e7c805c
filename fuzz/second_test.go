package fuzz_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// FuzzSecondDecoderRequest compares two independent decoders of requests, at every value
// size.
func FuzzSecondDecoderRequest(f *testing.F) {
	seedRequests[uint8](f)
	seedRequests[uint16](f)
	seedRequests[uint32](f)
	seedRequests[uint64](f)
	f.Fuzz(func(t *testing.T, src []byte) {
		checkRequest[uint8](t, src)
		checkRequest[uint16](t, src)
		checkRequest[uint32](t, src)
		checkRequest[uint64](t, src)
	})
}

// FuzzSecondDecoderResponse compares two independent decoders of responses and EVENTs.
func FuzzSecondDecoderResponse(f *testing.F) {
	seedResponses[uint8](f)
	seedResponses[uint16](f)
	seedResponses[uint32](f)
	seedResponses[uint64](f)
	f.Fuzz(func(t *testing.T, kind byte, src []byte) {
		checkResponse[uint8](t, codec.Kind(kind), src)
		checkResponse[uint16](t, codec.Kind(kind), src)
		checkResponse[uint32](t, codec.Kind(kind), src)
		checkResponse[uint64](t, codec.Kind(kind), src)
	})
}

func seedRequests[T codec.Value](f *testing.F) {
	for _, r := range requests[T]() {
		src := encode(f, r)
		f.Add(src)
		f.Add(src[:len(src)/2])
	}
	f.Add(encode(f, codec.Set[T]{Key: []byte("key"), Value: make([]byte, min(uint64(^T(0)), longest-9-2*uint64(codec.Size[T]())))}))
}

func seedResponses[T codec.Value](f *testing.F) {
	for _, r := range responses[T]() {
		src := encode(f, r)
		f.Add(byte(r.Kind()), src)
		f.Add(byte(r.Kind()), src[:len(src)-1])
		f.Add(byte(r.Kind()), append([]byte{2}, src[1:]...))
	}
}

func checkRequest[T codec.Value](t *testing.T, src []byte) {
	req, n, err := codec.DecodeRequest[T](src)
	items, length, wantErr := decodeNaive(src, codec.Size[T](), (*naive).request)
	same[T](t, req, n, err, items, length, wantErr)
}

func checkResponse[T codec.Value](t *testing.T, kind codec.Kind, src []byte) {
	read := map[codec.Kind]func(*naive){
		codec.KindStatus: (*naive).status, codec.KindQuery: (*naive).query, codec.KindGet: (*naive).get,
		codec.KindEvent: (*naive).event, codec.KindStat: (*naive).stat, codec.KindList: (*naive).list,
		codec.KindStats: (*naive).stats, codec.KindInfo: (*naive).info,
		codec.KindConnections: (*naive).connections, codec.KindConnection: (*naive).connection,
		codec.KindChannels: (*naive).channels, codec.KindChannel: (*naive).channel, codec.KindWhoAmI: (*naive).whoAmI,
	}[kind]
	if read == nil {
		read = func(*naive) { panic(errNaiveInvalid) }
	}
	res, n, err := codec.DecodeResponse[T](kind, src)
	items, length, wantErr := decodeNaive(src, codec.Size[T](), read)
	same[T](t, res, n, err, items, length, wantErr)
}

// same compares the results of package codec with those of the naive decoder.
func same[T codec.Value](t *testing.T, frame codec.Frame, n int, err error, items []any, length int, wantErr error) {
	t.Helper()
	switch {
	case wantErr == nil:
		require.NoError(t, err)
		require.Equal(t, length, n)
		require.Equal(t, items, itemsOf[T](frame))
	case errors.Is(wantErr, errNaiveShort):
		require.ErrorIs(t, err, codec.ErrShort)
	default:
		require.Error(t, err)
		require.NotErrorIs(t, err, codec.ErrShort)
	}
}

// itemsOf returns the items of a frame, as the naive decoder records them.
func itemsOf[T codec.Value](frame codec.Frame) []any {
	var d items
	switch m := frame.(type) {
	case codec.Insert[T]:
		d.add(0x01, uint64(m.Quota), uint64(m.TTL.Unit), uint64(m.TTL.Amount)).text(m.Key)
	case codec.Query:
		d.add(0x02).text(m.Key)
	case codec.Update[T]:
		d.add(0x03, uint64(m.Attribute), uint64(m.Change), uint64(m.Value)).text(m.Key)
	case codec.Purge:
		d.add(0x04).text(m.Key)
	case codec.Set[T]:
		d.add(0x05, uint64(m.TTL.Unit), uint64(m.TTL.Amount)).text(m.Key).text(m.Value)
	case codec.Get:
		d.add(0x06).text(m.Key)
	case codec.List:
		d.add(0x07)
	case codec.Info:
		d.add(0x08)
	case codec.Stat:
		d.add(0x09).text(m.Key)
	case codec.Stats:
		d.add(0x10)
	case codec.Subscribe:
		d.add(0x11).text(m.Channel)
	case codec.Unsubscribe:
		d.add(0x12).text(m.Channel)
	case codec.Publish[T]:
		d.add(0x13).text(m.Channel).text(m.Payload)
	case codec.Connections:
		d.add(0x14)
	case codec.Connection:
		d.add(0x15).text(m.ID[:])
	case codec.Channels:
		d.add(0x16)
	case codec.Channel:
		d.add(0x17).text(m.Name)
	case codec.WhoAmI:
		d.add(0x18)
	case codec.Event[T]:
		d.text(m.Channel).text(m.Payload)
	case codec.Status:
		d.found(bool(m))
	case codec.QueryResponse[T]:
		if d.found(m.Found) {
			d.add(uint64(m.Quota), uint64(m.TTL.Unit), uint64(m.TTL.Amount))
		}
	case codec.GetResponse[T]:
		if d.found(m.Found) {
			d.add(uint64(m.TTL.Unit), uint64(m.TTL.Amount)).text(m.Value)
		}
	case codec.StatResponse:
		if d.found(m.Found) {
			d.usage(m.Usage)
		}
	case codec.ListResponse[T]:
		each(&d, m.Fragments, func(e codec.ListEntry[T]) []byte {
			d.found(e.Buffer)
			d.add(uint64(e.Unit), e.Expires, uint64(e.Bytes))
			return e.Key
		})
	case codec.StatsResponse:
		each(&d, m.Fragments, func(e codec.StatsEntry) []byte {
			d.usage(e.Usage)
			return e.Key
		})
	case codec.ChannelsResponse:
		each(&d, m.Fragments, func(e codec.ChannelsEntry) []byte {
			d.add(e.ReadBytes, e.WriteBytes, e.Connections)
			return e.Name
		})
	case codec.ConnectionsResponse:
		each(&d, m.Fragments, func(e codec.ConnectionInfo) []byte {
			d.connection(e)
			return nil
		})
	case codec.ConnectionResponse:
		if d.found(m.Found) {
			d.connection(m.Connection)
		}
	case codec.ChannelResponse:
		if d.found(m.Found) {
			d.add(uint64(len(m.Subscribers)))
			for _, s := range m.Subscribers {
				d.text(s.ID[:]).add(s.Since, s.ReadBytes, s.WriteBytes)
			}
		}
	case codec.InfoResponse:
		d.info(m)
	case codec.WhoAmIResponse:
		d.text(m.ID[:])
	}
	return d
}

// items collects items.
type items []any

func (d *items) add(numbers ...uint64) *items {
	for _, n := range numbers {
		*d = append(*d, n)
	}
	return d
}

func (d *items) text(b []byte) *items {
	*d = append(*d, string(b))
	return d
}

func (d *items) found(ok bool) bool {
	if ok {
		d.add(1)
	} else {
		d.add(0)
	}
	return ok
}

func (d *items) usage(u codec.Usage) {
	d.add(u.ReadsPerMinute, u.WritesPerMinute, u.Reads, u.Writes)
}

// each adds the fragments of a response. Entry adds an entry and returns its name, or nil if
// such entries have none.
func each[E any](d *items, fragments [][]E, entry func(E) []byte) {
	d.add(uint64(len(fragments)))
	for _, entries := range fragments {
		d.add(uint64(len(entries)))
		var names [][]byte
		for _, e := range entries {
			names = append(names, entry(e))
		}
		for _, name := range names {
			if name != nil {
				d.text(name)
			}
		}
	}
}

func (d *items) connection(e codec.ConnectionInfo) {
	r := e.Requests
	d.text(e.ID[:]).add(uint64(e.Type), uint64(e.Transport), uint64(e.IPVersion)).text([]byte(e.IP))
	d.add(uint64(e.Port), e.Connected, e.ReadBytes, e.WriteBytes, e.PublishedBytes, e.ReceivedBytes,
		e.AllocatedBytes, e.ConsumedBytes,
		r.Insert, r.Set, r.Query, r.Get, r.Update, r.Purge, r.List, r.Info, r.Stat, r.Stats, r.Publish,
		r.Subscribe, r.Unsubscribe, r.Connections, r.Connection, r.Channels, r.Channel, r.WhoAmI)
}

func (d *items) info(m codec.InfoResponse) {
	r := m.Requests
	d.add(m.Timestamp)
	for _, c := range []codec.Count{
		r.All, r.Insert, r.Query, r.Update, r.Purge, r.Get, r.Set, r.List, r.Info, r.Stats, r.Stat, r.Subscribe,
		r.Unsubscribe, r.Publish, r.Channel, r.Channels, r.WhoAmI, r.Connection, r.Connections, m.ReadBytes, m.WriteBytes,
	} {
		d.add(c.Total, c.PerMinute)
	}
	d.add(m.Keys, m.Counters, m.Buffers, m.CounterBytes, m.BufferBytes, m.Subscriptions, m.Channels,
		m.RunningSince, m.Connections).text([]byte(m.Version))
}
