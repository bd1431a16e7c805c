//go:build unix

package redisbackend_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// processVariable has the orders of a process that a test has started.
const processVariable = "THROTTR_TEST_PROCESS"

// orders are what a process does.
type orders struct {
	Name string // of one of processes
	Args json.RawMessage
}

// processes are what a process can be.
var processes = map[string]func(args []byte) error{
	"holds places": holdPlaces,
}

// TestMain runs the tests, or is a process that one has started.
func TestMain(m *testing.M) {
	text, started := os.LookupEnv(processVariable)
	if !started {
		os.Exit(m.Run())
	}
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = processes[o.Name](o.Args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// process returns a process that is not started yet.
func process(t *testing.T, name string, args any) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(args)
	noError(t, err)
	text, err = json.Marshal(orders{name, text})
	noError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), processVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	return cmd
}
