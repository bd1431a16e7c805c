//go:build !linux && !darwin

package main

import "os"

// On other systems, top prints one view after the other.

func terminalSize(*os.File) (width, height int, ok bool) { return 0, 0, false }

func readKeys(*os.File) (restore func(), ok bool) { return nil, false }

func sizeChanges() <-chan os.Signal { return nil }
