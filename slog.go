package throttr

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
)

// LogTo returns an [Observer] that logs every event:
//   - at level debug: allowed hits and takes, and reservations that were settled
//   - at level info: denied hits and takes, resets, and calls whose ctx the caller has canceled
//   - at level warn: hits and takes that were allowed or denied although the backend failed, and
//     reservations that could not be settled
//   - at level error: other failures
//
// The message is "rate limit: allowed", "… denied", "… failed", "… reset" or "… settled". The
// attributes are those of the following that the event has: limit_name (see [RateLimit.Named]),
// entity, operation and parts (for [Entities]) or key, scale, took, limit, increment, reserved,
// take, waited, count, retry_after, degraded, a group metadata with sorted keys, and error.
//
// LogTo panics if logger is nil.
func LogTo(logger *slog.Logger) Observer {
	if logger == nil {
		panic("throttr: LogTo: logger is nil")
	}
	return ObserverFunc(func(ctx context.Context, e Event) {
		level := logLevel(ctx, e)
		if !logger.Enabled(ctx, level) {
			return
		}
		logger.LogAttrs(ctx, level, "rate limit: "+e.Kind.String(), logAttrs(e)...)
	})
}

func logLevel(ctx context.Context, e Event) slog.Level {
	switch {
	case e.Kind == EventFailed && errors.Is(ctx.Err(), context.Canceled):
		return slog.LevelInfo
	case e.Kind == EventFailed:
		return slog.LevelError
	case e.Result.Degraded:
		return slog.LevelWarn
	case e.Kind == EventSettled && e.Err != nil:
		return slog.LevelWarn
	case e.Kind == EventAllowed, e.Kind == EventSettled:
		return slog.LevelDebug
	default:
		return slog.LevelInfo
	}
}

func logAttrs(e Event) []slog.Attr {
	attrs := make([]slog.Attr, 0, 15)
	if e.Name != "" {
		attrs = append(attrs, slog.String("limit_name", e.Name))
	}
	if e.Entity != "" || e.Operation != "" {
		attrs = append(attrs, slog.String("entity", e.Entity), slog.String("operation", e.Operation))
		if len(e.Parts) > 0 {
			attrs = append(attrs, slog.Any("parts", e.Parts))
		}
	} else {
		attrs = append(attrs, slog.String("key", e.Key))
	}
	attrs = append(attrs, slog.Duration("scale", e.Scale), slog.Duration("took", e.Duration))
	if e.Kind != EventReset && (e.Increment > 0 || e.Result.Limit > 0) { // a failed Reset has neither
		attrs = append(attrs, slog.Uint64("limit", e.Result.Limit), slog.Uint64("increment", e.Increment))
	}
	switch {
	case e.Kind == EventSettled:
		attrs = append(attrs, slog.Uint64("reserved", e.Reserved))
	case e.Waited:
		attrs = append(attrs, slog.Bool("waited", true))
	case e.Take:
		attrs = append(attrs, slog.Bool("take", true))
	}
	if e.Kind == EventAllowed || e.Kind == EventDenied {
		attrs = append(attrs, slog.Uint64("count", e.Result.Count))
	}
	if e.Kind == EventDenied {
		attrs = append(attrs, slog.Duration("retry_after", e.Result.RetryAfter))
	}
	if e.Result.Degraded {
		attrs = append(attrs, slog.Bool("degraded", true))
	}
	if len(e.Metadata) > 0 {
		attrs = append(attrs, slog.Attr{Key: "metadata", Value: slog.GroupValue(metadataAttrs(e.Metadata)...)})
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	return attrs
}

// metadataAttrs copies metadata, as a handler may keep the attributes.
func metadataAttrs(metadata map[string]any) []slog.Attr {
	attrs := make([]slog.Attr, 0, len(metadata))
	for _, k := range slices.Sorted(maps.Keys(metadata)) {
		attrs = append(attrs, slog.Any(k, metadata[k]))
	}
	return attrs
}
