// Package otelthrottr reports the decisions of a rate limiter to OpenTelemetry: as metrics,
// and as events of the current span or spans of their own. It is a module of its own, so that
// package throttr depends on nothing of OpenTelemetry.
//
//	observer, err := otelthrottr.New()
//	if err != nil {
//		return err
//	}
//	limiter := throttr.NewRateLimit(client.Backend(), throttr.WithObserver(observer))
//
// # Metrics
//
//	throttr.hits          counter, {hit}     hits decided, and hits that have failed
//	throttr.hit.duration  histogram, s       how long a hit took, whatever came of it
//	throttr.resets        counter, {reset}   windows reset, and resets that have failed
//
// A hit counts as one, whatever its increment. The attributes have few values:
//
//	throttr.outcome    of a hit: allowed, denied, failed; of a reset: done, failed
//	throttr.degraded   true if the backend gave no answer, and a policy has decided; of hits
//	error.type         if there was an error: canceled, timeout, overloaded, connection,
//	                   closed, invalid, or _OTHER
//
// That is 23 time series for throttr.hits at the very most, and mostly two. Operations and
// entities of [throttr.Entities] multiply them and are left out unless asked for, see
// [WithOperation] and [WithEntity]. Keys are never among the attributes of metrics.
//
// # Traces
//
// The span of the caller's ctx, if it is recorded, gets an event throttr.hit or
// throttr.reset for each decision; with [WithSpans] it gets a child span instead. Besides the
// attributes above they have:
//
//	throttr.operation                    of Entities
//	throttr.limit, throttr.increment     of a hit
//	throttr.count                        of a hit that was decided
//	throttr.window, throttr.duration     in seconds; a span has no throttr.duration
//	throttr.retry_after                  in seconds, of a denial
//	error.message                        if there was an error
//
// Who it was about is left out unless asked for, see [WithIdentity]. A span's status is an
// error if the hit has failed; a denial is none.
package otelthrottr
