// Package testkit is what the tests of this module share: clients of a mock server, checks for goroutines and records
// that were left behind, proxies with the certificates of those that terminate TLS, and real Redis and PostgreSQL
// servers. It knows no client of either, and uses no library that their nested modules would then require, too.
package testkit

import (
	"os"
	"testing"
)

// NoError fails the test if there is an error.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Expect fails the test if ok is false.
func Expect(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf(format, args...)
	}
}

// read returns the text of a file, if there is one.
func read(name string) string {
	text, _ := os.ReadFile(name)
	return string(text)
}
