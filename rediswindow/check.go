package rediswindow

import (
	"fmt"
	"time"

	"github.com/throttr-go/throttr/window"
)

var _ window.Checker = (*Backend)(nil)

// Check implements [window.Checker]. The error matches [ErrScale] or [ErrRange].
func (b *Backend) Check(scale time.Duration, limit uint64) error {
	_, err := fieldOf(scale)
	if err == nil {
		err = b.check("limit", limit)
	}
	if err != nil {
		return fmt.Errorf("rediswindow: %w", err)
	}
	return nil
}
