package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// topHolders takes samples of the holders of keys on Redis.
type topHolders struct {
	servers string
	store   holdersOf // nil: not connected
	name    string    // of the limit
	keys    []string
	every   time.Duration
}

// holdersView is what top shows of them at one time. Its exported fields are its JSON.
type holdersView struct {
	Time    time.Time `json:"time"`
	Holders []holder  `json:"holders"` // first those who hold the most
	Error   string    `json:"error,omitempty"`

	name  string
	every time.Duration
}

// checkHolders checks the arguments and flags of top for what the servers are.
func (t *top) checkHolders(cmd *cobra.Command, keys []string, redis bool) error {
	switch {
	case !redis && (len(keys) > 0 || cmd.Flags().Changed("name")):
		return errors.New("keys and --name are for places in flight, which are on Redis: --servers is not its URL")
	case redis && len(keys) == 0:
		return errors.New("on Redis it shows who holds places in flight of keys: name them")
	}
	for _, flag := range []string{"limit", "sample", "list"} {
		if redis && cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s is for Throttr servers, and not for Redis", flag)
		}
	}
	return nil
}

func (s *topHolders) close() {
	if s.store != nil {
		s.store.Close()
	}
}

// sample lists the holders of all keys. It fails if those of a key can't be listed.
func (s *topHolders) sample(ctx context.Context) (frame, error) {
	v := &holdersView{Time: time.Now().UTC(), Holders: []holder{}, name: s.name, every: s.every}
	if s.store == nil {
		store, err := openHolders(ctx, s.servers)
		if err != nil {
			return v.failed(err)
		}
		s.store = store
	}
	for _, key := range s.keys {
		all, err := s.store.Holders(ctx, key, s.name)
		if err != nil {
			return v.failed(err)
		}
		for _, h := range all {
			v.Holders = append(v.Holders, newHolder(key, h))
		}
	}
	slices.SortStableFunc(v.Holders, func(a, b holder) int {
		return cmp.Or(cmp.Compare(b.Held, a.Held), cmp.Compare(b.Waiting, a.Waiting))
	})
	return v, nil
}

// failed adds why a sample has failed.
func (v *holdersView) failed(err error) (frame, error) {
	v.Error = err.Error()
	return v, err
}

// cut implements frame.
func (v *holdersView) cut(n int) { v.Holders = v.Holders[:min(len(v.Holders), n)] }

// lines implements frame.
func (v *holdersView) lines(width, height int, keys string) []string {
	const rest = 7 + 9 + 15 // the columns of numbers, with their gaps
	keyWidth := max((width-rest)/3, 10)
	processWidth := max(width-rest-keyWidth-1, 10)
	format := fmt.Sprintf("%%-%ds %%-%ds %%6s %%8s %%14s", keyWidth, processWidth)
	all := []string{v.Time.Local().Format("15:04:05") + "  every " + formatScale(v.every) + "  places in flight of " + quoted(v.name) + keys, ""}
	if v.Error != "" {
		all = append(all, strings.TrimPrefix(v.Error, "throttr: "))
	}
	all = append(all, fmt.Sprintf(format, "key", "process", "held", "waiting", "lease ends in"))
	for _, h := range v.Holders {
		ends := time.Duration(h.LeaseEndsSeconds * float64(time.Second))
		all = append(all, fmt.Sprintf(format, cutTo(quoted(h.Key), keyWidth), cutTo(quoted(h.Process), processWidth),
			short(float64(h.Held)), short(float64(h.Waiting)), formatScale(ends.Truncate(precision(ends)))))
	}
	if height > 0 {
		all = all[:min(len(all), height)]
	}
	for i, line := range all {
		all[i] = cutTo(line, width)
	}
	return all
}
