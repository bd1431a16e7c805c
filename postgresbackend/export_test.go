package postgresbackend

import (
	"context"
	"time"
)

// Table returns the name of the table of a backend.
func Table(b *Backend) string { return b.table }

// Patient bounds calls by a minute: on a machine that does much else, a request that waits for nothing can take seconds.
func Patient(o *options) { o.timeout = time.Minute }

// Sweep deletes rows that are over, unless another process has done so in the last minute.
func Sweep(ctx context.Context, b *Backend) error { return b.sweep(ctx) }
