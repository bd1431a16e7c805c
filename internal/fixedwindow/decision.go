package fixedwindow

import (
	"context"
	"time"
)

// maxDecide bounds how long the first windows wait for a decision.
const maxDecide = time.Second

// decision is that of a sweeper whether to park its server. No record is created before. The zero
// value is a decision that nothing waits for.
type decision struct {
	made <-chan struct{} // closed when the decision is made; nil if there is no sweeper
	by   time.Time       // nothing waits for longer
}

// await waits for the decision, and reports whether it had to.
func (d *decision) await(ctx context.Context) (waited bool, err error) {
	select {
	case <-d.made:
		return false, nil
	default:
	}
	wait := time.Until(d.by)
	if wait <= 0 {
		return false, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-d.made:
	case <-timer.C:
	case <-ctx.Done():
		return true, ctx.Err()
	}
	return true, nil
}
