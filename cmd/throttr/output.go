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

// output prints records: as JSON, one object per line, or as rows of a table.
type output struct {
	w    *bufio.Writer
	json *json.Encoder // nil: a table

	columns []column
	heading []string   // goes before the first row
	rows    [][]string // that are yet to be printed
	several bool       // servers: there is a column for them
	err     error      // the first of encoding
}

// column is a column of a table.
type column struct {
	right bool // numbers are aligned at their end
	width int
}

// blockRows is how many rows are aligned with each other at least; those before them are as
// well, unless they are narrower.
const blockRows = 500

func newOutput(w io.Writer, asJSON bool) *output {
	o := &output{w: bufio.NewWriter(w)}
	if asJSON {
		o.json = json.NewEncoder(o.w)
		o.json.SetEscapeHTML(false)
	}
	return o
}

// table starts a table. A name that begins with ">" is of a column of numbers; a table
// whose names are empty has no heading, and neither has one without rows.
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

// add prints a record: itself as JSON, or its cells as a row.
func (o *output) add(record any, cells ...string) {
	if o.json != nil {
		if err := o.json.Encode(record); err != nil && o.err == nil {
			o.err = err
		}
		return
	}
	if o.heading != nil {
		o.rows = append(o.rows, o.heading)
		o.heading = nil
	}
	o.rows = append(o.rows, cells)
	if len(o.rows) >= blockRows {
		o.printRows()
	}
}

// flush prints what has been added.
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
		for i, cell := range row {
			o.columns[i].width = max(o.columns[i].width, utf8.RuneCountInString(cell))
		}
	}
	for _, row := range o.rows {
		o.w.WriteString(o.line(row))
	}
	o.rows = nil
}

func (o *output) line(row []string) string {
	var b strings.Builder
	for i, cell := range row {
		if i > 0 {
			b.WriteString("  ")
		}
		pad := strings.Repeat(" ", o.columns[i].width-utf8.RuneCountInString(cell))
		if o.columns[i].right {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

// quoted returns text as it is, or quoted where it would not be clear what it is: if it is
// empty, or has spaces, quotes or bytes that can't be shown.
func quoted(text string) string {
	clear := text != "" && utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return r == ' ' || r == '"' || r == '\\' || !strconv.IsPrint(r)
	})
	if clear {
		return text
	}
	return strconv.Quote(text)
}

// keyed is the key of a record in JSON. A key that is not text has its bytes beside it.
type keyed struct {
	Key       string `json:"key"`
	KeyBase64 []byte `json:"key_base64,omitempty"`
}

func keyOf(key string) keyed { return keyed{Key: key, KeyBase64: unlessText(key)} }

// unlessText returns the bytes of what JSON can't carry as a string.
func unlessText(s string) []byte {
	if utf8.ValidString(s) {
		return nil
	}
	return []byte(s)
}

// span returns a duration for people: to the millisecond, if it is a second or more.
func span(d time.Duration) string {
	if d >= time.Second {
		d = d.Round(time.Millisecond)
	}
	return d.String()
}

// instant returns a time for people.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// number returns a number for a cell.
func number[N ~int | ~int64 | ~uint16 | ~uint64](n N) string { return fmt.Sprint(n) }
