package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
)

// part is the generated part of a document, between two lines that mark it.
type part struct{ document, begin, end string }

// write puts text into the document.
func (p part) write(text []byte) error {
	_, updated, err := p.with(text)
	if err != nil {
		return err
	}
	return os.WriteFile(p.document, updated, 0o644)
}

// check returns an error if the document has another text.
func (p part) check(text []byte) error {
	old, updated, err := p.with(text)
	if err == nil && !bytes.Equal(old, updated) {
		err = fmt.Errorf("%s is out of date: go -C internal/tools run ./evidence -write", p.document)
	}
	return err
}

// with returns the document as it is, and as it is with text.
func (p part) with(text []byte) (old, updated []byte, err error) {
	if old, err = os.ReadFile(p.document); err != nil {
		return nil, nil, err
	}
	before, rest, ok1 := bytes.Cut(old, []byte(p.begin))
	_, after, ok2 := bytes.Cut(rest, []byte(p.end))
	if !ok1 || !ok2 {
		return nil, nil, fmt.Errorf("%s does not have the lines %q and %q", p.document, p.begin, p.end)
	}
	return old, slices.Concat(before, []byte(p.begin), text, []byte(p.end), after), nil
}
