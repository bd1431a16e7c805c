module github.com/throttr-go/throttr/cmd/throttr

go 1.25.0

require (
	github.com/charmbracelet/x/term v0.2.2
	github.com/stretchr/testify v1.12.1
	github.com/throttr-go/throttr v0.1.0
	github.com/throttr-go/throttr/redisbackend v0.1.0
	go.yaml.in/yaml/v3 v3.0.5
)

require (
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	golang.org/x/sync v0.21.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
