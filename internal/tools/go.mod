module github.com/throttr-go/throttr/internal/tools

go 1.25.0

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/stretchr/testify v1.12.1
	github.com/throttr-go/throttr v0.1.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/throttr-go/throttr => ../..
