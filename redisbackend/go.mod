module github.com/throttr-go/throttr/redisbackend

go 1.25.0

replace github.com/throttr-go/throttr => ../

require (
	github.com/redis/rueidis v1.0.79
	github.com/throttr-go/throttr v0.1.0
)

require (
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	golang.org/x/sync v0.1.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
