// Package otelthrottr reports the decisions of a rate limiter to OpenTelemetry, as metrics. It is a module of its own,
// so that package throttr does not depend on OpenTelemetry.
//
//	observer, err := otelthrottr.New()
//	if err != nil {
//		return err
//	}
//	limiter := throttr.NewRateLimit(client.Backend(), throttr.WithObserver(observer))
//
// # Metrics
//
//	throttr.hits           counter, {hit}            hits and takes that were decided, and those that failed
//	throttr.hit.duration   histogram, s              durations of hits and takes, whatever their outcome
//	throttr.wait.duration  histogram, s              durations of waits (RateLimit.Wait) instead
//	throttr.limit.usage    histogram, 1              which part of a limit is counted, after each decision of the
//	                                                 store, by name
//	throttr.settlements    counter, {settlement}     takes of reservations that were settled, or could not be
//	throttr.resets         counter, {reset}          windows that were reset, and resets that failed
//	throttr.outages        up-down counter, {outage} stores that are away at present, see throttr.WithBreaker
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
package otelthrottr
