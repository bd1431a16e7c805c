package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// measured is the document whose tables come from measurements. Their figures vary from run to
// run, so nothing compares them.
const measured = "docs/reliability.md"

// measurements are the tests that write tables, with the name of each one's table.
var measurements = []struct{ test, table string }{
	{"TestNoFaultCausesWrongRepeatedOrLateCalls", "faults"},
	{"TestShiftedResponsesAreDetected", "shifts"},
}

// measure runs the tests and puts their tables into the document.
func measure() error {
	folder, err := os.MkdirTemp("", "tables")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	for _, m := range measurements {
		cmd := exec.Command("go", "test", "./internal/systemtest/faults", "-run", "^"+m.test+"$",
			"-fault.seeds=100", "-fault.tables="+folder)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd, err, out)
		}
		table, err := os.ReadFile(filepath.Join(folder, m.table+".md"))
		if err != nil {
			return err
		}
		if err := measuredPart(m.table).write(table); err != nil {
			return err
		}
	}
	if err := measureRedis("failovers", "TestFailoverAllowsFewHitsMore"); err != nil {
		return err
	}
	return measureRedis("partitions", "TestPrimaryThatComesBackAllowsFewHitsMore")
}

// measuredPart is where the table of that name is.
func measuredPart(table string) part {
	return part{measured, "<!-- " + table + ": written by go -C internal/tools run ./evidence -measure -->\n", "<!-- /" + table + " -->\n"}
}

// redisRuns is how often each test of a cluster is run with each client of Redis.
const redisRuns = 3

// measureRedis runs the tests of that name, which log rows of a table. They need redis-server.
func measureRedis(name, test string) error {
	table := "\n| client | hits | allowed | errors | over the limit | most of a window | errors until |\n|---|---:|---:|---:|---:|---:|---:|\n"
	for _, client := range []struct{ name, module string }{{"rueidis", "redisbackend"}, {"go-redis", "redisbackend/goredis"}} {
		cmd := exec.Command("go", "test", "-C", client.module, "-run", "^"+test+"$", "-v",
			fmt.Sprint("-count=", redisRuns), ".")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd, err, out)
		}
		rows := 0
		for line := range strings.Lines(string(out)) {
			if row := strings.TrimSpace(line); strings.HasPrefix(row, "| ") {
				table += "| " + client.name + " " + row + "\n"
				rows++
			}
		}
		if rows != redisRuns {
			return fmt.Errorf("%v: %d rows, want %d: was it skipped?\n%s", cmd, rows, redisRuns, out)
		}
	}
	return measuredPart(name).write([]byte(table))
}
