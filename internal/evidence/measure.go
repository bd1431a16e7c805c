package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
		p := part{measured, "<!-- " + m.table + ": written by go run ./internal/evidence -measure -->\n", "<!-- /" + m.table + " -->\n"}
		if err := p.write(table); err != nil {
			return err
		}
	}
	return nil
}
