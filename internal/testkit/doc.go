// Package testkit is what the tests of this module share: clients of a mock server, checks for goroutines and records
// that were left behind, proxies with the certificates of those that terminate TLS, and real Redis and PostgreSQL
// servers. It knows no client of either, and uses no library that their nested modules would then require, too.
package testkit

import (
	"os"
	"testing"
)

// noError fails the test if there is an error.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read returns the text of a file, if there is one.
func read(name string) string {
	text, _ := os.ReadFile(name)
	return string(text)
}
