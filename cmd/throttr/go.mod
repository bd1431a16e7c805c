module github.com/throttr-go/throttr/cmd/throttr

go 1.25.0

require (
	github.com/charmbracelet/x/term v0.2.2
	github.com/stretchr/testify v1.12.1
	github.com/throttr-go/throttr v0.1.0
	github.com/throttr-go/throttr/postgresbackend v0.1.0
	github.com/throttr-go/throttr/redisbackend v0.1.0
	go.yaml.in/yaml/v3 v3.0.5
	golang.org/x/sync v0.22.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.13.0 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)
