package codec

//go:generate go run ./internal/sizes
