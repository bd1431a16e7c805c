package admission_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/memory"
)

// Addresses and what everybody shares are stored as they are, other keys as digests, and what only looks like an
// address, too.
func TestKeysAreStoredAsDigestsUnlessTheyArePlain(t *testing.T) {
	digests, plain := newGate(t, admission.Config{}), newGate(t, admission.Config{PlainKeys: true})
	long := strings.Repeat("k", 129)
	digest := func(key string) string { return "client:h" + admission.Digest(key) }
	for _, test := range []struct {
		key         admission.Key
		want, plain string
	}{
		{admission.Key{Text: "ann"}, digest("ann"), "client:kann"},
		{admission.Key{Text: "192.0.2.1", Plain: true}, "client:k192.0.2.1", "client:k192.0.2.1"},
		{admission.Key{Text: "192.0.2.1"}, digest("192.0.2.1"), digest("192.0.2.1")},
		{admission.Key{Text: "2001:db8::/64"}, digest("2001:db8::/64"), digest("2001:db8::/64")},
		{admission.Key{Text: "unknown"}, digest("unknown"), digest("unknown")},
		{admission.Key{Text: "everyone"}, digest("everyone"), digest("everyone")},
		{admission.Everyone, "client:keveryone", "client:keveryone"},
		{admission.Key{Text: long, Plain: true}, digest(long), digest(long)},
		{admission.Key{Text: long[:128]}, digest(long[:128]), "client:k" + long[:128]},
		{admission.Key{Text: "h" + admission.Digest(long)}, digest("h" + admission.Digest(long)), "client:kh" + admission.Digest(long)},
	} {
		require.Equal(t, test.want, digests.StoredKey(test.key))
		require.Equal(t, test.plain, plain.StoredKey(test.key))
	}
	d := plain.Admit(t.Context(), request(long))
	require.Equal(t, long, d.Strictest.Key, "the handler sees the key unchanged")
}

// FuzzKeysStayApart compares the keys under which two requests are counted. They are equal only if the keys of the
// requests are equal.
func FuzzKeysStayApart(f *testing.F) {
	long := string(make([]byte, 129))
	f.Add("a", "b", true)
	f.Add(long, long+"x", false)
	f.Add("", "192.0.2.1", true)
	f.Fuzz(func(t *testing.T, key1, key2 string, plain bool) {
		gate, err := admission.New(throttr.NewRateLimit(memory.New(memory.WithCleanPeriod(0))), admission.Config{
			Limits: []throttr.Limit{minute}, PlainKeys: plain,
		})
		require.NoError(t, err)
		stored := func(text string) string { return gate.StoredKey(admission.Key{Text: text}) }
		require.Equal(t, key1 == key2, stored(key1) == stored(key2))
		require.NotEqual(t, gate.StoredKey(admission.Key{Text: "192.0.2.1", Plain: true}), stored(key1))
	})
}
