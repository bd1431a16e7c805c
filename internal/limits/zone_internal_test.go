package limits

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWithoutZoneDataTheErrorSaysHowToEmbedIt(t *testing.T) {
	_, err := loadZone("Europe/Berlin", func(string) (*time.Location, error) { return nil, errors.New("none") })
	require.ErrorContains(t, err, `import _ "time/tzdata"`)
	_, err = loadZone("Mars/Olympus", time.LoadLocation)
	require.NotContains(t, err.Error(), "tzdata")
}
