package postgresbackend

import "context"

// Table returns the name of the table of a backend.
func Table(b *Backend) string { return b.table }

// Sweep deletes rows that are over, unless another process has done so in the last minute.
func Sweep(ctx context.Context, b *Backend) error { return b.sweep(ctx) }
