package main

import (
	"context"
	"strings"

	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/httplimit"
)

// storedKey is the command key.
func storedKey(e *env, f *flags) action {
	header := f.String("header", "", "the `name` of the header field that has the value")
	plain := f.Bool("plain", false, "the value is an address, or stored as it is")
	return func(_ context.Context, args []string) (bool, error) {
		value, err := e.argument(args[0])
		if err != nil {
			return false, err
		}
		k := admission.Key{Text: string(value), Plain: *plain}
		if args[0] == "-" {
			k.Text = strings.TrimRight(k.Text, "\r\n")
		}
		if addr := admission.Addr(k.Text); *plain && addr != "unknown" {
			k.Text = addr
		}
		if *header != "" {
			k.Text = httplimit.HeaderKey(*header, k.Text)
		}
		key := new(admission.Gate).StoredKey(k)
		e.out.add(keyOf(key), key)
		return true, nil
	}
}
