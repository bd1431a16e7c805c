module github.com/throttr-go/throttr

go 1.25.0

require (
	github.com/jackc/puddle/v2 v2.2.2
	github.com/stretchr/testify v1.12.1
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.1.0 // indirect
)
