package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/throttr-go/throttr"
)

// output prints lines: JSON, an object each, or rows of a table.
type output struct {
	w       *bufio.Writer
	json    *json.Encoder // nil: a table
	table   *tabwriter.Writer
	heading []string // precedes the first row
	rows    int      // in table
	err     error    // why a line could not be printed as JSON, the first one
}

// blockRows is how many rows are printed together. Their columns are of equal width.
const blockRows = 500

func newOutput(w io.Writer) *output {
	o := &output{w: bufio.NewWriter(w)}
	o.table = tabwriter.NewWriter(o.w, 0, 0, 2, ' ', 0)
	return o
}

// setJSON prints JSON from now on, or tables, as the value of a flag says.
func (o *output) setJSON(value string) error {
	on, err := strconv.ParseBool(value)
	if err != nil {
		return errors.New("must be true or false")
	}
	o.json = nil
	if on {
		o.json = json.NewEncoder(o.w)
		o.json.SetEscapeHTML(false)
	}
	return nil
}

// columns starts a table. If it gets no rows, it is not printed.
func (o *output) columns(names ...string) {
	o.table.Flush()
	o.heading = names
}

// add prints a line as JSON, or as a row of fields.
func (o *output) add(line any, fields ...any) {
	if o.json != nil {
		o.err = cmp.Or(o.err, o.json.Encode(line))
		return
	}
	if o.heading != nil {
		fmt.Fprintln(o.table, strings.Join(o.heading, "\t"))
		o.heading = nil
	}
	fmt.Fprintf(o.table, strings.Repeat("%v\t", len(fields)-1)+"%v\n", fields...)
	if o.rows++; o.rows%blockRows == 0 {
		o.table.Flush()
	}
}

// text prints text as it is.
func (o *output) text(text string) {
	o.table.Flush()
	o.w.WriteString(text)
}

// flush prints everything that was added. It fails if the writer does, or if a line could not be printed as JSON: a
// server may tell a time after the year 9999.
func (o *output) flush() error {
	o.table.Flush()
	return cmp.Or(o.w.Flush(), o.err)
}

// quoted returns text as it is, or quoted if it is empty or contains spaces, quotes or bytes
// that are not printable.
func quoted(text string) string {
	q := strconv.Quote(text)
	if text != "" && !strings.Contains(text, " ") && q == `"`+text+`"` {
		return text
	}
	return q
}

// keyWidth is how much of a key a table shows. The digests of package httplimit fit.
const keyWidth = 60

// shown returns a key for a table.
func shown(key string) string { return cutTo(quoted(key), keyWidth) }

// cutTo cuts a text that is too long.
func cutTo(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

// keyed is the JSON of a key. KeyBase64 is there if the key is not UTF-8.
type keyed struct {
	Key       string `json:"key"`
	KeyBase64 []byte `json:"key_base64,omitempty"`
}

func keyOf(key string) keyed { return keyed{Key: key, KeyBase64: unlessText(key)} }

// unlessText returns the bytes of s if it is not UTF-8, which a JSON string must be.
func unlessText(s string) []byte {
	if utf8.ValidString(s) {
		return nil
	}
	return []byte(s)
}

// unknown is what a table shows of what the store does not know.
const unknown = "unknown"

// dash returns a text, or a dash in place of none.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return quoted(text)
}

// left formats the time that remains: a second and more in whole seconds, rounded up.
func left(d time.Duration) string {
	switch {
	case d >= throttr.Never:
		return "never"
	case d > time.Second:
		d = (d + time.Second - 1).Truncate(time.Second)
	default:
		d = d.Round(100 * time.Microsecond)
	}
	return formatScale(d)
}

// leftIf is left, or a dash if nothing ends.
func leftIf(ends bool, d time.Duration) string {
	if ends {
		return left(d)
	}
	return "-"
}

// formatTime formats a time.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
