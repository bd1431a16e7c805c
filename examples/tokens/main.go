// Tokens limits what customers spend on a language model. A request may cost up to an estimate, and
// what it really costs is known when it is over. So the program reserves the estimate, and commits
// the actual cost: what was not used is there for others at once. Each customer may use 1,000
// tokens a minute. The model is made up. The program exits at once.
//
//	go run ./examples/tokens
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
)

const (
	outputAtMost  = 300 // tokens of an answer
	charsPerToken = 4
)

// The limits of each customer.
var (
	tokens   = throttr.Limit{Name: "tokens", Max: 1000, Scale: time.Minute}
	requests = throttr.Limit{Name: "requests", Max: 6, Scale: time.Minute}
)

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run sends some prompts of two customers.
func run(ctx context.Context, out io.Writer) error {
	backend := memory.New() // or a backend on Redis, if there are several processes
	defer backend.Close()
	p := &proxy{limiter: throttr.NewRateLimit(backend), out: out}
	for i, q := range []prompt{
		{"acme", "Summarize this report.", 80},
		{"acme", "And this one.", 120},
		{"acme", "Translate it.", 290},
		{"acme", "Write a limerick about rate limits.", -1}, // the model fails
		{"acme", "Again, please.", 60},
		{"acme", "Write a novel.", 300},
		{"acme", "And a sequel.", 300},
		{"smith", "Hello?", 10},
	} {
		if err := p.answer(ctx, i+1, q); err != nil {
			return err
		}
	}
	return nil
}

// prompt is a request of a customer, and how many tokens its answer will have.
type prompt struct {
	customer, text string
	answer         int
}

// proxy passes prompts on to the model.
type proxy struct {
	limiter *throttr.RateLimit
	out     io.Writer
}

// answer gets the answer to a prompt if the limits of the customer allow it.
func (p *proxy) answer(ctx context.Context, n int, q prompt) error {
	input := uint64(len(q.text)) / charsPerToken
	estimate := input + outputAtMost
	rv, ok, err := p.limiter.Reserve(ctx, tokens.For(q.customer, estimate), requests.For(q.customer, 1))
	if err != nil {
		return err
	}
	if !ok {
		left := rv.Results()
		fmt.Fprintf(p.out, "%d %-5s refused: %d tokens and %d requests left\n", n, q.customer, left[0].Remaining, left[1].Remaining)
		return nil
	}
	defer rv.Cancel(ctx) // does nothing after Commit
	output, err := complete(q)
	if err != nil { // nothing was used
		fmt.Fprintf(p.out, "%d %-5s failed: %v\n", n, q.customer, err)
		return nil
	}
	fmt.Fprintf(p.out, "%d %-5s reserved %d tokens, used %d\n", n, q.customer, estimate, input+output)
	return rv.Commit(ctx, input+output, 1)
}

// complete is the model: it returns how many tokens its answer has.
func complete(q prompt) (uint64, error) {
	if q.answer < 0 {
		return 0, errors.New("the model is overloaded")
	}
	return uint64(q.answer), nil
}
