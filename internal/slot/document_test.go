package slot_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/slot"
)

var write = flag.Bool("slot.write", false, "write the tables of bands into the documents")

var largest = []uint64{math.MaxUint8, math.MaxUint16, math.MaxUint32, math.MaxUint64}

const day = 24 * time.Hour

// TestTablesOfBands compares the tables of the documents with the bands that clients use. With
// -slot.write, it writes them.
func TestTablesOfBands(t *testing.T) {
	for _, table := range []struct {
		path, name string
		text       string
	}{
		{"../../docs/internals/windows.md", "bands", bandsTable()},
		{"../../docs/servers.md", "scales", scalesTable()},
	} {
		begin := fmt.Sprintf("<!-- %s: written by go test ./internal/slot -run TestTablesOfBands -slot.write -->\n", table.name)
		end := fmt.Sprintf("<!-- /%s -->\n", table.name)
		old, err := os.ReadFile(table.path)
		require.NoError(t, err)
		before, rest, ok := bytes.Cut(old, []byte(begin))
		require.True(t, ok, "%s has no %s", table.path, begin)
		block, after, ok := bytes.Cut(rest, []byte(end))
		require.True(t, ok, "%s has no %s", table.path, end)
		if *write {
			text := string(before) + begin + table.text + end + string(after)
			require.NoError(t, os.WriteFile(table.path, []byte(text), 0o644))
			continue
		}
		require.Equal(t, table.text, string(block), "%s: %s", table.path, table.name)
	}
}

// bandsTable returns the guard and the bands of usual scales.
func bandsTable() string {
	var b strings.Builder
	b.WriteString("| scale | guard | `uint8` | `uint16` | `uint32` | `uint64` |\n|---|---|---|---|---|---|\n")
	for _, scale := range []time.Duration{
		200 * time.Millisecond, time.Second, time.Minute, time.Hour, 30 * day,
	} {
		cells := make([]string, len(largest))
		guard := time.Duration(0)
		for i, most := range largest {
			bands, ok := slot.BandsFor(scale, most)
			if !ok {
				cells[i] = "none"
				continue
			}
			guard = bands.Guard
			cells[i] = fmt.Sprintf("%s; %s; %s", unitNames[bands.Unit],
				format(time.Duration(bands.Margin-bands.Doom)*bands.Unit), format(time.Duration(bands.Doom)*bands.Unit))
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", format(scale), format(guard), strings.Join(cells, " | "))
	}
	return b.String()
}

// scalesTable returns the longest scales that are whole numbers of units.
func scalesTable() string {
	var b strings.Builder
	b.WriteString("| | largest limit | longest scale in whole ms | in whole s | in whole min | in whole h |\n|---|---|---|---|---|---|\n")
	for i, most := range largest {
		limit := strconv.FormatUint(most, 10)
		if most == math.MaxUint64 {
			limit = "2⁶⁴ − 1"
		}
		fmt.Fprintf(&b, "| `uint%d` | %s", 8<<i, limit)
		for _, unit := range []time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour} {
			b.WriteString(" | " + format(longest(unit, most)))
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

// longest returns the longest scale up to which all whole numbers of a unit have bands.
func longest(unit time.Duration, most uint64) time.Duration {
	fits := func(n int) bool {
		b, ok := slot.BandsFor(time.Duration(n)*unit, most)
		return ok && b.Unit <= unit
	}
	// An odd number of units is no whole number of the next unit.
	n := 2*sort.Search(int(100*365*day/unit), func(n int) bool { return !fits(2*n + 1) }) - 1
	if fits(n + 1) {
		n++
	}
	return time.Duration(max(n, 0)) * unit
}

// format returns a duration as documents have it, rounded down to few digits.
func format(d time.Duration) string {
	in := func(unit time.Duration, name string) string {
		return strconv.FormatFloat(math.Floor(float64(d)/float64(unit)*10)/10, 'f', -1, 64) + " " + name
	}
	switch {
	case d == 0:
		return "none"
	case d < time.Second:
		return in(time.Millisecond, "ms")
	case d%time.Minute != 0 && d < 5*time.Minute:
		return in(time.Second, "s")
	case d%time.Hour != 0 && d < 3*time.Hour:
		return in(time.Minute, "min")
	case d < 10*day:
		return in(time.Hour, "h")
	case d < 2*365*day:
		return in(day, "days")
	default:
		return in(365*day, "years")
	}
}

// unitNames are the names of units as documents have them.
var unitNames = map[time.Duration]string{
	time.Nanosecond: "ns", time.Microsecond: "µs", time.Millisecond: "ms", time.Second: "s", time.Minute: "min", time.Hour: "h",
}
