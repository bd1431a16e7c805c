package postgresbackend

import "context"

// Table returns the name of the table of a backend.
func Table(b *Backend) string { return b.table }

// Sweep deletes rows that are over now.
func Sweep(ctx context.Context, b *Backend) (int, error) { return b.sweepAll(ctx) }

// SweepIfDue deletes rows that are over, unless another process has done so in the last minute.
func SweepIfDue(ctx context.Context, b *Backend) (bool, error) { return b.sweep(ctx) }
