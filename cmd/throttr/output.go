package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// output prints lines: JSON, an object each, or rows of a table.
type output struct {
	w    *bufio.Writer
	json *json.Encoder // nil: a table

	columns []column
	heading []string   // precedes the first row
	rows    [][]string // not printed yet
	several bool       // there are several servers, and a table for each
	server  string     // whose table it is
	names   []string   // of the columns of that table
	err     error      // the first error of json
}

// column is a column of a table.
type column struct {
	right bool // aligned to the right, as numbers are
	width int
}

// blockRows is the number of rows that are printed together. They have columns of equal width,
// at least that of the rows before.
const blockRows = 500

func newOutput(w io.Writer, asJSON bool) *output {
	o := &output{w: bufio.NewWriter(w)}
	if asJSON {
		o.useJSON()
	}
	return o
}

// useJSON prints JSON from now on.
func (o *output) useJSON() {
	o.json = json.NewEncoder(o.w)
	o.json.SetEscapeHTML(false)
}

// table starts a table with these columns. A name that begins with ">" is of a column of
// numbers. A table with empty names has no heading, and a table without rows is not printed.
func (o *output) table(names ...string) {
	o.printRows()
	o.columns, o.heading = nil, nil
	for _, name := range names {
		name, right := strings.CutPrefix(name, ">")
		o.columns = append(o.columns, column{right: right})
		if name != "" {
			o.heading = append(o.heading, name)
		}
	}
}

// add prints a line as JSON, or as a row of fields.
func (o *output) add(line any, fields ...string) {
	if o.json != nil {
		if err := o.json.Encode(line); err != nil && o.err == nil {
			o.err = err
		}
		return
	}
	if o.heading != nil {
		o.rows = append(o.rows, o.heading)
		o.heading = nil
	}
	o.rows = append(o.rows, fields)
	if len(o.rows) >= blockRows {
		o.printRows()
	}
}

// flush prints everything that was added.
func (o *output) flush() error {
	o.printRows()
	if err := o.w.Flush(); err != nil {
		return err
	}
	return o.err
}

func (o *output) printRows() {
	if o.json != nil {
		o.rows = nil
		return
	}
	for _, row := range o.rows {
		for i, field := range row {
			o.columns[i].width = max(o.columns[i].width, utf8.RuneCountInString(field))
		}
	}
	for _, row := range o.rows {
		o.w.WriteString(o.line(row))
	}
	o.rows = nil
}

func (o *output) line(row []string) string {
	var b strings.Builder
	for i, field := range row {
		if i > 0 {
			b.WriteString("  ")
		}
		pad := strings.Repeat(" ", o.columns[i].width-utf8.RuneCountInString(field))
		if o.columns[i].right {
			b.WriteString(pad + field)
		} else {
			b.WriteString(field + pad)
		}
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

// quoted returns text as it is, or quoted if it is empty or contains spaces, quotes or bytes
// that are not printable.
func quoted(text string) string {
	plain := text != "" && utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return r == ' ' || r == '"' || r == '\\' || !strconv.IsPrint(r)
	})
	if plain {
		return text
	}
	return strconv.Quote(text)
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

// seconds is a duration whose JSON is a number of seconds.
type seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// UnmarshalJSON implements json.Unmarshaler.
func (s *seconds) UnmarshalJSON(text []byte) error {
	var n float64
	err := json.Unmarshal(text, &n)
	*s = seconds(n * float64(time.Second))
	return err
}

// formatDuration formats a duration. It rounds a second or more to milliseconds.
func formatDuration(d time.Duration) string {
	if d >= time.Second {
		d = d.Round(time.Millisecond)
	}
	return d.String()
}

// formatTime formats a time.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// number formats a number.
func number[N ~int | ~int64 | ~uint16 | ~uint64](n N) string { return fmt.Sprint(n) }
