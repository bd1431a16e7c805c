package redisbackend

import (
	"strings"
	"testing"
)

// FuzzNames compares the names of two keys' hashes. They are the same only if prefix and
// key are. What is between the first opening brace and the first closing one behind it,
// which decides on the slot, depends on the key alone, and is never empty: Redis would take
// the whole name then.
func FuzzNames(f *testing.F) {
	f.Add("", "a", "", "{k:a}")
	f.Add("a:", "b", "a:{k:", "b}")
	f.Add("a%7B", "k:", "a{", "k:")
	f.Add("}", "}", "{", "{}")
	f.Add("throttr:", strings.Repeat("k", maxPlain), "throttr:", strings.Repeat("k", maxPlain+1))
	f.Fuzz(func(t *testing.T, prefix1, key1, prefix2, key2 string) {
		one, other := New(nil, WithPrefix(prefix1)), New(nil, WithPrefix(prefix2))
		name1, name2 := one.name(key1), other.name(key2)
		if same := prefix1 == prefix2 && key1 == key2; same != (name1 == name2) {
			t.Errorf("%q and %q are named %q and %q", []string{prefix1, key1}, []string{prefix2, key2}, name1, name2)
		}
		if tag1, tag2 := tagOf(name1), tagOf(name2); tag1 == "" || (key1 == key2) != (tag1 == tag2) {
			t.Errorf("the tags of %q and %q are %q and %q", name1, name2, tag1, tag2)
		}
	})
}

// tagOf returns the hash tag of a name, as Redis finds it.
func tagOf(name string) string {
	_, rest, _ := strings.Cut(name, "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}
