package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		require.NoError(t, run(&out))
		require.Equal(t, `123456     401 Wrong name or password.
secret     401 Wrong name or password.
qwerty     401 Wrong name or password.
wonderland 429 Too many attempts.
wonderland 200 Welcome.
letmein    401 Wrong name or password.
dragon     401 Wrong name or password.
monkey     401 Wrong name or password.
wonderland 429 Too many attempts.
`, out.String())
	})
}
