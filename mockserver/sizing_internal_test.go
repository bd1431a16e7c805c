package mockserver

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var write = flag.Bool("sizing.write", false, "write the table of sizing into the document")

// sizing is what a server executes for limits.
var sizing = []struct {
	what, requests string
	least, most    int // requests
	inserts        int // of them
}{
	{"a hit on a known window, or all hits that come while a request for the window is in flight", "2", 2, 2, 0},
	{"a hit on a window that is known to be full", "none, for a while", 0, 0, 0},
	{"a window of a key that had two windows not long ago", "7, or 9 if the client does not know the last one; no INSERT", 7, 9, 0},
	{"the first window of a key", "4, one of them INSERT", 4, 4, 1},
	{"the second window of a key", "6, one of them INSERT", 6, 6, 1},
	{"the removal of the records of an idle key", "18, and a few of each other client that had windows of it", 18, 18, 0},
}

// TestTableOfSizing compares the table of the document with the service times of a server. With
// -sizing.write, it writes it.
func TestTableOfSizing(t *testing.T) {
	const (
		path  = "../docs/servers.md"
		begin = "<!-- sizing: written by go test ./mockserver -run TestTableOfSizing -sizing.write -->\n"
		end   = "<!-- /sizing -->\n"
	)
	var b strings.Builder
	b.WriteString("| | requests to the server | server time | per second, at most | over a Unix socket |\n|---|---|---|---|---|\n")
	for _, row := range sizing {
		tcp, perSecond := cost(tcpCosts, row.least, row.most, row.inserts)
		_, unix := cost(unixCosts, row.least, row.most, row.inserts)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", row.what, row.requests, tcp, perSecond, unix)
	}
	old, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(old), begin)
	require.True(t, ok)
	block, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *write {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+b.String()+end+after), 0o644))
		return
	}
	require.Equal(t, b.String(), block)
}

func TestCreationGetsSlowerWithTheRecordsThatWereMade(t *testing.T) {
	for made, want := range map[int]time.Duration{
		0: 3 * time.Microsecond, 10_000: 19 * time.Microsecond, 20_000: 35 * time.Microsecond,
		30_500: 87500 * time.Nanosecond, oldAge: 140 * time.Microsecond, 1 << 40: 140 * time.Microsecond,
	} {
		require.Equal(t, want, creationTime(made), made)
	}
}

// cost returns the server time, and how often it fits a second.
func cost(c costs, least, most, inserts int) (serverTime, perSecond string) {
	if most == 0 {
		return "0", ""
	}
	old := time.Duration(inserts) * creationTime(oldAge)
	from, to := time.Duration(least)*c.request, time.Duration(most)*c.request+old
	switch {
	case inserts > 0:
		return "up to " + micros(to), rate(to)
	case from == to:
		return micros(to), rate(to)
	default:
		return micros(from) + " to " + micros(to), rate(to) + " to " + rate(from)
	}
}

func micros(d time.Duration) string {
	return fmt.Sprintf("%.0f µs", float64(d)/float64(time.Microsecond))
}

// rate returns how often d fits a second, with two digits, or three from 10,000 on.
func rate(d time.Duration) string {
	n, unit := int(time.Second/d), 100
	if n >= 10_000 {
		unit = 1000
	}
	n = n / unit * unit
	return strconv.Itoa(n/1000) + "," + fmt.Sprintf("%03d", n%1000)
}
