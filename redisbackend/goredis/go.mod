module github.com/throttr-go/throttr/redisbackend/goredis

go 1.25.0

require (
	github.com/redis/go-redis/v9 v9.20.0
	github.com/throttr-go/throttr v0.1.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sync v0.1.0 // indirect
)

replace github.com/throttr-go/throttr => ../../
