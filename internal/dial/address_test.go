package dial_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/dial"
)

func TestParseAddressErrorsNameTheMistake(t *testing.T) {
	for s, want := range map[string]string{
		"":              "is neither host:port nor unix:///path",
		"h":             "is neither host:port nor unix:///path",
		"::1:9000":      "is neither host:port nor unix:///path",
		"h:":            `"h:" has no port`,
		"h:0":           `"h:0" has the port "0", which is not a number from 1 to 65535`,
		"unix://":       `"unix://" has no path`,
		" h:9000":       `" h:9000" has a space`,
		"h\n:9000":      `"h\n:9000" has a space`,
		"throttr://h:1": "a URL is not an address",
		"u:secret@h:1":  "an address has no credentials",
	} {
		a, err := dial.ParseAddress(s)
		require.ErrorContains(t, err, want, s)
		require.Zero(t, a)
	}
}
