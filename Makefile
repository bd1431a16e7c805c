# The commands of CONTRIBUTING.md.

.PHONY: test race lint ci nightly generate bench

test: # all tests of the main module
	go test ./...

race: # the same with the race detector
	go test -race -short -timeout 30m ./...

lint:
	gofmt -l .
	go vet ./...

ci: # everything that must pass before a change is merged
	.ci/run

nightly: # what takes too long for every change
	.ci/nightly

generate: # the parts of the tree that are written by commands
	go generate ./codec

bench: # the comparison with other packages
	go -C benchmarks run .
