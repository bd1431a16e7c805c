// Command proxy writes modules of this repository into a folder, as a module proxy would serve them
// if they were tagged with a version. The go command reads it as a proxy with a file:// URL.
//
//	go run .ci/proxy.go folder version directory...
package main

import (
	"archive/zip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: go run .ci/proxy.go folder version directory...")
		os.Exit(2)
	}
	for _, dir := range os.Args[3:] {
		if err := release(os.Args[1], os.Args[2], dir); err != nil {
			fmt.Fprintf(os.Stderr, "proxy: %s: %v\n", dir, err)
			os.Exit(1)
		}
	}
}

// release writes the module in dir to the folder of the proxy.
func release(folder, version, dir string) error {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(mod), "\n")
	module := strings.TrimPrefix(line, "module ")
	to := filepath.Join(folder, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(to, version+".zip"))
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := writeZip(archive, module+"@"+version+"/", dir); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"list":            version + "\n",
		version + ".info": fmt.Sprintf(`{"Version":%q,"Time":"2030-01-01T00:00:00Z"}`, version),
		version + ".mod":  string(mod),
	} {
		if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeZip writes the files of the module in dir, without those of the modules inside of it.
// Unless it has a LICENSE, it gets the one of the repository.
func writeZip(to io.Writer, prefix, dir string) error {
	z := zip.NewWriter(to)
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, none := os.Stat(filepath.Join(name, "go.mod"))
			if name != dir && (none == nil || d.Name() == ".git") {
				return filepath.SkipDir
			}
			return nil
		}
		inModule, err := filepath.Rel(dir, name)
		if err != nil || !d.Type().IsRegular() || d.Name() == ".git" {
			return err
		}
		return addFile(z, prefix+filepath.ToSlash(inModule), name)
	})
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "LICENSE")); err != nil {
		if err := addFile(z, prefix+"LICENSE", "LICENSE"); err != nil {
			return err
		}
	}
	return z.Close()
}

// addFile adds a file to z.
func addFile(z *zip.Writer, as, name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	w, err := z.Create(as)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
