package rediswindow

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzNames compares the names of the hashes of two keys. It checks that:
//
//   - the names are equal only if the prefixes and the keys are equal;
//   - the hash tag depends on the key alone;
//   - the hash tag is not empty. If it were, Redis would use the whole name instead.
func FuzzNames(f *testing.F) {
	f.Add("", "a", "", "{k:a}")
	f.Add("a:", "b", "a:{k:", "b}")
	f.Add("a%7B", "k:", "a{", "k:")
	f.Add("}", "}", "{", "{}")
	f.Add("throttr:", strings.Repeat("k", maxPlain), "throttr:", strings.Repeat("k", maxPlain+1))
	f.Fuzz(func(t *testing.T, prefix1, key1, prefix2, key2 string) {
		one := New(newFake(), WithPrefix(prefix1))
		other := New(newFake(), WithPrefix(prefix2))
		name1, name2 := one.nameOf(key1), other.nameOf(key2)
		require.Equal(t, prefix1 == prefix2 && key1 == key2, name1 == name2, "names %q and %q", name1, name2)
		require.NotEmpty(t, hashTag(name1))
		require.Equal(t, key1 == key2, hashTag(name1) == hashTag(name2), "tags of %q and %q", name1, name2)
	})
}

// hashTag returns the hash tag of a name, by the rules of Redis.
func hashTag(name string) string {
	_, rest, _ := strings.Cut(name, "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}

func TestSlotsAreThoseOfRedis(t *testing.T) {
	for tag, want := range map[string]uint16{"": 0, "123456789": 0x31c3, "foo": 12182} { // as CLUSTER KEYSLOT says
		require.Equal(t, want, slotOf([]byte(tag)), tag)
	}
}
