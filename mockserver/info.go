package mockserver

import (
	"time"

	"github.com/throttr-go/throttr/codec"
)

// version is the version of the server that the mock server follows.
const version = "5.0.11"

func (p *sized[T]) info(x *exchange, _ codec.Info) error {
	s, st := x.conn.srv, p.store
	of := func(op codec.Op) codec.Count { return s.requests[op].count(st.minute) }
	res := codec.InfoResponse{
		Timestamp: st.now / uint64(time.Second),
		Requests: codec.InfoRequests{
			Insert: of(codec.OpInsert), Query: of(codec.OpQuery), Update: of(codec.OpUpdate), Purge: of(codec.OpPurge),
			Get: of(codec.OpGet), Set: of(codec.OpSet), List: of(codec.OpList), Info: of(codec.OpInfo),
			Stats: of(codec.OpStats), Stat: of(codec.OpStat), Subscribe: of(codec.OpSubscribe),
			Unsubscribe: of(codec.OpUnsubscribe), Publish: of(codec.OpPublish), Channel: of(codec.OpChannel),
			Channels: of(codec.OpChannels), WhoAmI: of(codec.OpWhoAmI), Connection: of(codec.OpConnection),
			Connections: of(codec.OpConnections),
		},
		RunningSince: s.since,
		Version:      version,
	}
	for op := range s.requests {
		n := of(codec.Op(op))
		res.Requests.All.Total += n.Total
		res.Requests.All.PerMinute += n.PerMinute
	}
	for _, r := range st.records {
		if r.buffer {
			res.Buffers++
			res.BufferBytes += uint64(len(r.value))
		} else {
			res.Counters++
		}
	}
	res.CounterBytes = res.Counters * uint64(codec.Size[T]())
	res.Keys = res.Counters + res.Buffers
	for c := range s.conns {
		if c.gone {
			continue
		}
		res.Connections++
		// A real server does not count its bytes per minute.
		res.ReadBytes.Total += c.readBytes
		res.WriteBytes.Total += c.writeBytes
		res.Subscriptions += uint64(c.subscribed)
		if c.subscribed > 0 {
			res.Channels++ // as a real server counts them
		}
	}
	x.respond(res)
	return nil
}
