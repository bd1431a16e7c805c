// Command benchmarks runs the benchmarks of this folder, which compare throttr with other ways to limit rates from
// Go, in alternating rounds, and writes RESULTS.md and the charts. The machine should do nothing else meanwhile.
//
//	go -C benchmarks run .                     # five rounds
//	go -C benchmarks run . -quick              # one short round, which writes nothing
//	go -C benchmarks run . -against v1.2.0     # beside the packages of another commit
//	go -C benchmarks test -bench 'Redis/keys=1/callers=8/' .
//
// The output of the benchmarks is in ours.txt, and with the packages of the other commit in theirs.txt, for benchstat.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var (
	rounds = flag.Int("rounds", 5, "the `number` of rounds")
	bench  = flag.String("bench", ".",
		"run only benchmarks that match the `pattern`; unless that is all, RESULTS.md and the charts stay")
	benchtime = flag.String("benchtime", "1s", "the `time` of each benchmark in a round")
	against   = flag.String("against", "", "run the benchmarks with the packages of a `commit`, too")
	quick     = flag.Bool("quick", false,
		"one short round, without a million keys and with one outage, which writes nothing")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	folder, err := os.MkdirTemp("", "benchmarks")
	check(err)
	defer os.RemoveAll(folder)
	sides := []*side{{name: "ours", binary: filepath.Join(folder, "ours")}}
	output("go", "test", "-c", "-o", sides[0].binary, ".")
	if *against != "" {
		sides = append(sides, &side{name: "theirs", binary: filepath.Join(folder, "theirs")})
		sides[1].build(filepath.Join(folder, "tree"), *against)
	}
	if *quick {
		*rounds, *benchtime = 1, "20x"
	}
	for round := range *rounds {
		for _, name := range strings.Fields(output(sides[0].binary, "-test.list", *bench)) {
			for i := range sides {
				sides[(i+round)%len(sides)].measure(name) // neither is always the first
			}
		}
	}
	if *quick {
		return
	}
	for _, s := range sides {
		check(os.WriteFile(s.name+".txt", s.output.Bytes(), 0o644))
	}
	if *bench != "." {
		return
	}
	check(os.WriteFile("RESULTS.md", sides[0].report(), 0o644))
	check(sides[0].charts())
}

// side is this tree, or another commit.
type side struct {
	name, binary string
	output       bytes.Buffer
	rows         []*row
}

// row is what was measured of a contender with a load, by unit and round.
type row struct {
	bench, load, contender string
	figures                map[string][]float64
}

// build builds the benchmarks of this folder, which use exported names only, with the packages of a commit.
func (s *side) build(tree, commit string) {
	theirs := filepath.Join(tree, "benchmarks")
	output("sh", "-c", fmt.Sprintf("mkdir %[1]s && git -C .. archive %[2]s | tar -x -C %[1]s && rm -r %[3]s", tree,
		commit, theirs))
	check(os.CopyFS(theirs, os.DirFS(".")))
	output("go", "-C", theirs, "test", "-mod=mod", "-c", "-o", s.binary, ".")
}

// measure runs one benchmark.
func (s *side) measure(name string) {
	args := []string{"-test.run", "^$", "-test.timeout", "1h", "-test.bench", "^" + name + "$",
		"-test.benchtime", *benchtime}
	switch {
	case name == "BenchmarkOutage" && *quick:
		args = append(args, "-test.benchtime", "1x", "-test.bench", "^"+name+"$/hangs/^throttr$")
	case name == "BenchmarkOutage":
		args = append(args, "-test.benchtime", "1x")
	case *quick:
		args = append(args, "-test.skip", "/keys=1000000/")
	}
	out := output(s.binary, args...)
	fmt.Printf("%s, %s\n%s", name, s.name, out)
	s.output.WriteString(out)
	for line := range strings.Lines(out) {
		s.add(line)
	}
}

var (
	benchLine = regexp.MustCompile(`^Benchmark(\w+)/(\S+)/(\S+?)(?:-\d+)?\s+\d+\s+(.*)`)
	// A name has no spaces, and no slashes of its own.
	contenders = strings.NewReplacer("redis_rate", "redis_rate", "x_time_rate", "x/time/rate", "_", " ")
)

// add reads a line of output.
func (s *side) add(line string) {
	m := benchLine.FindStringSubmatch(line)
	if m == nil {
		return
	}
	r := s.row(m[1], m[2], contenders.Replace(m[3]))
	for fields := strings.Fields(m[4]); len(fields) > 1; fields = fields[2:] {
		f, _ := strconv.ParseFloat(fields[0], 64)
		r.figures[fields[1]] = append(r.figures[fields[1]], f)
	}
}

// row returns the row of a contender and load.
func (s *side) row(bench, load, contender string) *row {
	for _, r := range s.rows {
		if r.bench == bench && r.load == load && r.contender == contender {
			return r
		}
	}
	r := &row{bench, load, contender, map[string][]float64{}}
	s.rows = append(s.rows, r)
	return r
}

// output runs a command and returns what it prints.
func output(name string, args ...string) string {
	var errs bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		log.Fatalf("%v: %v\n%s%s", cmd, err, out, errs.Bytes())
	}
	return string(out)
}

func check(err error) {
	if err != nil {
		log.Fatal("benchmarks: ", err)
	}
}
