package api

import (
	"fmt"
	"slices"
	"strings"
)

// Texts are the texts of a type of constants, by their numbers.
type Texts struct {
	Kind  string // in errors, such as "algorithm"
	Err   error  // of a number or a text that is none of them
	Texts []string
}

// String returns the text of a number.
func (t *Texts) String(number uint8) string {
	if int(number) < len(t.Texts) {
		return t.Texts[number]
	}
	return fmt.Sprintf("%s %d", t.Kind, number)
}

// Marshal returns the text of a number that has one.
func (t *Texts) Marshal(number uint8) ([]byte, error) {
	text := t.String(number)
	if int(number) < len(t.Texts) {
		return []byte(text), nil
	}
	return nil, fmt.Errorf("%w: %s", t.Err, text)
}

// Unmarshal sets a number to the one with a text.
func (t *Texts) Unmarshal(number *uint8, text []byte) error {
	i := slices.Index(t.Texts, string(text))
	if i < 0 {
		all := strings.Trim(strings.Join(t.Texts, ", "), ", ") // some types have a 0 without a text
		return fmt.Errorf("%w: %s %.64q; there are %s", t.Err, t.Kind, text, all)
	}
	*number = uint8(i)
	return nil
}
