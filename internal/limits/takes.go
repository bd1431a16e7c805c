package limits

import (
	"context"

	"github.com/throttr-go/throttr/window"
)

// SameCount reports whether two takes are of one count.
func SameCount(a, b *window.Take) bool {
	return a.Key == b.Key && a.Limit.Scale == b.Limit.Scale && Identity(&a.Limit) == Identity(&b.Limit)
}

// Merge returns takes in which those of one count are one take of their sum, under the lowest Max and
// Burst, and for each take its index there. If no two are of one count, it returns takes and nil. A sum
// over [window.Unlimited], which no limit grants, is Unlimited+1.
func Merge(takes []window.Take) (merged []window.Take, index []int) {
	for i := 1; i < len(takes); i++ {
		for j := range i {
			if SameCount(&takes[i], &takes[j]) {
				return merge(takes)
			}
		}
	}
	return takes, nil
}

func merge(takes []window.Take) (merged []window.Take, index []int) {
	for i := range takes {
		t := &takes[i]
		at := 0
		for at < len(merged) && !SameCount(t, &merged[at]) {
			at++
		}
		index = append(index, at)
		if at == len(merged) {
			merged = append(merged, *t)
			continue
		}
		m := &merged[at]
		m.N = min(m.N+t.N, window.Unlimited+1)
		if t.Limit.Algorithm == window.TokenBucket {
			m.Limit.Burst = min(Capacity(&m.Limit), Capacity(&t.Limit))
		}
		m.Limit.Max = min(m.Limit.Max, t.Limit.Max)
	}
	return merged, index
}

// TakeAll is what is the same in the TakeAll of every backend. Without takes, it grants. It checks each take, in their
// order. Then those of one count are made as one, as [Merge] says, and each gets its window. An error is about the key.
func TakeAll(ctx context.Context, takes []window.Take, windows []window.Window, check func(t *window.Take) error,
	take func(ctx context.Context, merged []window.Take, windows []window.Window) (granted bool, err error),
) (granted bool, key string, err error) {
	if len(takes) == 0 {
		return true, "", nil
	}
	for i := range takes {
		if err := check(&takes[i]); err != nil {
			return false, takes[i].Key, err
		}
	}
	merged, index := Merge(takes)
	if index == nil {
		granted, err = take(ctx, takes, windows)
		return granted, takes[0].Key, err
	}
	ofMerged := make([]window.Window, len(merged))
	granted, err = take(ctx, merged, ofMerged)
	for i, at := range index {
		windows[i] = ofMerged[at]
	}
	return granted, takes[0].Key, err
}
