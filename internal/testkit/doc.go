// Package testkit is what the tests of this module share: clients of a mock server, servers
// whose every byte a test chooses, connections that a test can block, and checks for goroutines
// and records that were left behind.
package testkit
