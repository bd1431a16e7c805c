package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// view is what top shows at one time. Its exported fields are its JSON.
type view struct {
	Time    time.Time `json:"time"`
	Servers []sampled `json:"servers"`
	Keys    []topKey  `json:"keys"` // of all servers, first those that are nearest to their limits
	Cost    float64   `json:"cost"` // share of a server's time, the largest of all servers

	every  time.Duration
	limits limits
}

// cut implements frame.
func (v *view) cut(n int) { v.Keys = v.Keys[:min(len(v.Keys), n)] }

// lines implements frame.
func (v *view) lines(width, height int, keys string) []string {
	var all []string
	add := func(line string) { all = append(all, cutTo(line, width)) }
	add(v.Time.Local().Format("15:04:05") + "  every " + formatScale(v.every) + v.limitText() + keys)
	add("")
	v.addServers(add)
	add("")
	room := len(v.Keys)
	if height > 0 {
		room = min(room, max(height-len(all)-1, 0))
	}
	v.addKeys(add, width, room)
	if height > 0 && len(all) > height {
		all = all[:height]
	}
	return all
}

func (v *view) limitText() string {
	var words []string
	for scale, n := range v.limits {
		words = append(words, fmt.Sprintf("%d/%s", n, formatScale(scale)))
	}
	if words == nil {
		return "  no limits known: see --limit"
	}
	slices.Sort(words)
	return "  limits " + strings.Join(words, " ")
}

// cutTo cuts a line that is too long.
func cutTo(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	runes := []rune(line)
	return string(runes[:max(width-1, 0)]) + "…"
}

// addServers adds a table of the servers.
func (v *view) addServers(add func(string)) {
	format := "%-21s %7s %7s %6s %7s %6s %5s %6s"
	add(fmt.Sprintf(format, "server", "req/s", "hits/s", "over/s", "records", "open", "conns", "bytes"))
	for _, s := range v.Servers {
		if s.err != nil {
			add(fmt.Sprintf("%-21s %v", s.Server, strings.TrimPrefix(s.Error, "throttr: ")))
			continue
		}
		rate := func(f *float64) string {
			if f == nil {
				return "-"
			}
			return short(*f)
		}
		add(fmt.Sprintf(format, s.Server, rate(s.Requests), rate(s.Hits), rate(s.Over), short(float64(s.Records)),
			short(float64(s.Windows)), short(float64(s.Connections)), short(float64(s.Bytes))))
	}
	for _, s := range v.Servers {
		if s.err == nil && s.queries < s.known {
			add(fmt.Sprintf("%s: of %d records of windows, %d were read", s.Server, s.known, s.queries))
		}
	}
	add(fmt.Sprintf("this costs %.2f %% of a server's time", 100*v.Cost))
}

// addKeys adds a table of the first windows.
func (v *view) addKeys(add func(string), width, room int) {
	const rest = 7 + 9 + 9 + 6 + 9 + 9 // the other columns, with their gaps
	keyWidth := max(width-rest, 10)
	format := fmt.Sprintf("%%-%ds %%6s %%8s %%8s %%5s %%8s %%8s", keyWidth)
	add(fmt.Sprintf(format, "key", "scale", "count", "limit", "used", "hits/s", "ends in"))
	for _, k := range v.Keys[:min(room, len(v.Keys))] {
		limit, used := "-", "-"
		if k.Limit != nil {
			limit, used = short(float64(*k.Limit)), fmt.Sprintf("%.0f%%", 100*k.usage)
		}
		endsIn := time.Duration(k.EndsIn)
		add(fmt.Sprintf(format, cutTo(quoted(k.Key), keyWidth), formatScale(time.Duration(k.Scale)), short(float64(k.Count)),
			limit, used, short(k.Rate), formatScale(endsIn.Truncate(precision(endsIn)))))
	}
}

// precision returns to what a remaining time is rounded down.
func precision(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return 100 * time.Millisecond
	}
	return time.Second
}

// short formats a number with at most 6 characters.
func short(f float64) string {
	switch {
	case f < 10 && f != float64(int(f)):
		return fmt.Sprintf("%.1f", f)
	case f < 99_999.5:
		return fmt.Sprintf("%.0f", f)
	}
	for _, unit := range "kMGTPE" {
		if f /= 1000; f < 9999.5 {
			return fmt.Sprintf("%.0f%c", f, unit)
		}
	}
	return "many"
}
