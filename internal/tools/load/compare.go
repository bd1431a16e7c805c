package load

import (
	"context"
	"time"
)

// Contender is something whose speed can be measured again and again.
type Contender interface {
	// Measure is [Run] for the contender. It ignores the Goroutines of cfg.
	Measure(ctx context.Context, cfg Config) (Result, error)
}

// maxTurnWarmup bounds the warm-up at the start of each turn.
const maxTurnWarmup = 100 * time.Millisecond

// Compare measures contenders in turns, each turn an equal part of d for each of them. The
// order is reversed after each turn. It returns the results of each contender, by turn, and
// ends at the first error.
func Compare[C Contender](ctx context.Context, d time.Duration, turns int, contenders []C) ([][]Result, error) {
	results := make([][]Result, len(contenders))
	part := d / time.Duration(turns)
	for turn := range turns {
		for i := range contenders {
			if turn%2 == 1 {
				i = len(contenders) - 1 - i
			}
			res, err := contenders[i].Measure(ctx, Config{Warmup: min(part/10, maxTurnWarmup), Duration: part})
			if err != nil {
				return nil, err
			}
			results[i] = append(results[i], res)
		}
	}
	return results, nil
}
