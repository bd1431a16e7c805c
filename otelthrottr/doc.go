// Package otelthrottr reports the decisions of a rate limiter to OpenTelemetry: as metrics, and as
// events of the current span or as spans. It is a module of its own, so that package throttr does
// not depend on OpenTelemetry.
//
//	observer, err := otelthrottr.New()
//	if err != nil {
//		return err
//	}
//	limiter := throttr.NewRateLimit(client.Backend(), throttr.WithObserver(observer))
//
// # Metrics
//
//	throttr.hits          counter, {hit}     hits and takes that were decided, and those that failed
//	throttr.hit.duration  histogram, s       durations of hits and takes, whatever their outcome
//	throttr.wait.duration histogram, s       durations of waits (RateLimit.Wait) instead
//	throttr.limit.usage   histogram, 1       which part of a limit is counted, after each decision of the store, by name
//	throttr.settlements   counter, {settlement}  takes of reservations that were settled, or could not be
//	throttr.resets        counter, {reset}   windows that were reset, and resets that failed
//	throttr.outages       up-down counter, {outage}  stores that are away at present, see throttr.WithBreaker
//
// A hit counts as one, whatever its n. So do takes and charges. The attributes have few values:
//
//	throttr.outcome    of a hit: allowed, denied, failed, or would_deny: a shadow limit would have denied
//	                   what was allowed; of a reset or settlement: done, failed
//	throttr.degraded   of a hit: true if the backend failed and a policy or a fallback has decided
//	throttr.limit_name the name of the limit, if it has one
//	error.type         if there was an error: canceled, timeout, overloaded, connection,
//	                   closed, invalid, or _OTHER
//
// This makes at most 31 time series for throttr.hits for each name, and usually two. Names should be few: those
// of the limits of a program, such as the operations of package entities. Keys are never attributes of metrics.
//
// [ObserveLeases] adds what a process has taken ahead with package lease:
//
//	throttr.lease.keys      gauge, {key}      hot keys, each with its scale and limit
//	throttr.lease.held      gauge, {place}    places that can be spent
//	throttr.lease.spent     counter, {place}  places that hits got
//	throttr.lease.returned  counter, {place}  places that were given back
//	throttr.lease.lost      counter, {place}  places that stayed counted until their windows ended
//	throttr.lease.takes     counter, {take}   takes of blocks
//
// # Traces
//
// If the span in the context of a call is recording, it receives an event throttr.hit, throttr.take,
// throttr.charge, throttr.wait, throttr.settle, throttr.reset or throttr.forget. With [WithSpans] it gets a
// child span instead. In addition to the attributes above, these have:
//
//	throttr.limit, throttr.n             the Max of the limit, and how many the call was for
//	throttr.burst                        of a token bucket, if it is not Max
//	throttr.algorithm                    such as fixed-window
//	throttr.count                        of a call that was decided
//	throttr.reserved                     of a settlement, whose n is what was used
//	throttr.scale, throttr.duration      in seconds; a span has no throttr.duration
//	throttr.retry_after                  in seconds, of a denial, unless waiting does not help
//	error.message                        if there was an error: its cause
//
// Keys and metadata are omitted, except with [WithIdentity]. The text of an error can have the
// key, so error.message and the status have only its cause, such as "throttr: connection lost", or its
// type if the cause is not known. With [WithIdentity], they have the whole text. The status of a span is an
// error if the hit or reset failed. A denial is not an error.
package otelthrottr
