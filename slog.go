package throttr

import (
	"context"
	"log/slog"
)

// LogTo returns an [Observer] that logs: what was allowed at level debug, denials and resets
// at info, decisions without the backend at warn, failures at error.
func LogTo(logger *slog.Logger) Observer {
	return ObserverFunc(func(ctx context.Context, e Event) {
		level := logLevel(e)
		if !logger.Enabled(ctx, level) {
			return
		}
		logger.LogAttrs(ctx, level, "rate limit: "+e.Kind.String(), logAttrs(e)...)
	})
}

func logLevel(e Event) slog.Level {
	switch {
	case e.Kind == EventFailed:
		return slog.LevelError
	case e.Result.Degraded:
		return slog.LevelWarn
	case e.Kind == EventAllowed:
		return slog.LevelDebug
	default:
		return slog.LevelInfo
	}
}

func logAttrs(e Event) []slog.Attr {
	attrs := make([]slog.Attr, 0, 12)
	if e.Entity != "" || e.Operation != "" {
		attrs = append(attrs, slog.String("entity", e.Entity), slog.String("operation", e.Operation))
	} else {
		attrs = append(attrs, slog.String("key", e.Key))
	}
	attrs = append(attrs, slog.Duration("window", e.Scale), slog.Duration("took", e.Duration))
	if e.Kind != EventReset {
		attrs = append(attrs, slog.Uint64("limit", e.Result.Limit), slog.Uint64("increment", e.Increment))
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
		attrs = append(attrs, slog.Any("metadata", e.Metadata))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	return attrs
}
