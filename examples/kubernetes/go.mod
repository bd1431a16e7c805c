module github.com/throttr-go/throttr/examples/kubernetes

go 1.25.0
