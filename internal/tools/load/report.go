package load

// Workload is an operation on records of a server.
type Workload string

// The workloads.
const (
	Hit      Workload = "hit"      // counts a hit on a window that is open and never full
	Increase Workload = "increase" // adds 1 to a counter
	Query    Workload = "query"    // reads a counter
	Insert   Workload = "insert"   // makes a new counter
	Sparse   Workload = "sparse"   // counts a hit on a short window of one of many keys; most hits open one
)

// Workloads are the workloads that [FramesOf] knows.
var Workloads = []Workload{Hit, Increase, Query, Insert}

// Report is a line of a benchmark's output: what was measured, and the result.
type Report struct {
	Workload   Workload `json:"workload"`
	Raw        bool     `json:"raw"`             // measured with [Raw], not with a client
	Other      bool     `json:"other,omitempty"` // measured by another program
	Goroutines int      `json:"goroutines"`      // of Raw: outstanding operations
	Conns      int      `json:"conns"`           // per server
	Keys       int      `json:"keys"`
	Turns      int      `json:"turns"` // that the result combines
	Result
	Ratio *float64 `json:"ratio,omitempty"` // of operations per second, to another line
}
