package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/codec/uint32"
	"github.com/throttr-go/throttr/codec/uint64"
	"github.com/throttr-go/throttr/codec/uint8"
)

func TestPackagesAreGenerated(t *testing.T) {
	source, err := os.ReadFile("../../uint16/uint16.go")
	require.NoError(t, err)
	for _, size := range []int{1, 4, 8} {
		name := fmt.Sprintf("uint%d", 8*size)
		got, err := os.ReadFile("../../" + name + "/" + name + ".go")
		require.NoError(t, err)
		require.Equal(t, Package(string(source), size), string(got), "run go generate ./codec")
	}
}

func TestValueSizesAreThoseOfTheNames(t *testing.T) {
	require.Equal(t, []int{1, 2, 4, 8}, []int{uint8.Size, uint16.Size, uint32.Size, uint64.Size})
	require.Equal(t, ^uint8.Value(0), uint8.Max)
	require.Equal(t, ^uint16.Value(0), uint16.Max)
	require.Equal(t, ^uint32.Value(0), uint32.Max)
	require.Equal(t, ^uint64.Value(0), uint64.Max)
}
