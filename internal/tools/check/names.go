package main

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

var (
	testName   = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)`)
	namedTest  = regexp.MustCompile(`\b(Test|Benchmark|Fuzz)[A-Z][A-Za-z0-9_]+`)
	namedFile  = regexp.MustCompile(`[A-Za-z0-9_.-]*(/[A-Za-z0-9_.-]+)*\.(go|md|yml|svg)\b`)
	quotedPath = regexp.MustCompile("`([A-Za-z.]+(?:/[A-Za-z0-9_.-]+)+)/?`")
	quotedName = regexp.MustCompile("`([A-Za-z_][A-Za-z0-9_.]*)(?:\\(\\))?`")
	linkedName = regexp.MustCompile(`\[\*?([A-Za-z]+(?:\.[A-Z][A-Za-z0-9]*)*)\]`)
	mixedCase  = regexp.MustCompile(`[A-Z][a-z]`)
	version    = regexp.MustCompile(`/v[0-9]`)
	link       = regexp.MustCompile(`\]\(([^) ]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)
	headLink   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	noAnchor   = regexp.MustCompile(`[^a-z0-9 _-]`)
	command    = regexp.MustCompile("(throttr|go run \\.|go -C [a-z/]+ run|go test)[^|`\n]* --?[a-z].*")
	flagName   = regexp.MustCompile(`^--?([a-z][^=,;:)"\n]*)`)
	oldNames   = regexp.MustCompile(`(?m)^\|[^|]*\|`)
)

// each calls f with each match of an expression in documents and comments, or with its first group.
func each(texts map[string]string, e *regexp.Regexp, f func(file, match string)) {
	for file, text := range texts {
		for _, m := range e.FindAllStringSubmatch(text, -1) {
			f(file, m[min(1, len(m)-1)])
		}
	}
}

func (t *tree) checkTests() {
	for _, texts := range []map[string]string{t.prose, t.comments} {
		for file, text := range texts {
			for _, name := range namedTest.FindAllString(text, -1) {
				if !t.tests[name] && !elsewhere[name] {
					t.report(file, "there is no", name)
				}
			}
		}
	}
}

// checkFiles finds files that do not exist: with a folder from the root or from the document, or without one.
func (t *tree) checkFiles() {
	for _, texts := range []map[string]string{t.prose, t.comments} {
		for file, text := range texts {
			for _, name := range namedFile.FindAllString(text, -1) {
				for strings.HasPrefix(name, "../") || strings.HasPrefix(name, "./") {
					_, name, _ = strings.Cut(name, "/")
				}
				if !t.files[name] && !t.bases[name] && !t.files[path.Join(path.Dir(file), name)] {
					t.report(file, "there is no file", name)
				}
			}
		}
	}
	each(t.prose, quotedPath, func(file, name string) {
		if top, _, _ := strings.Cut(name, "/"); t.folders[top] && !t.files[name] && !version.MatchString(name) {
			t.report(file, "there is no", name)
		}
	})
}

// checkIdentifiers looks at names in backquotes, and in brackets in comments: each part between dots is one of the
// code. The first column of the changelog's tables has names that are gone.
func (t *tree) checkIdentifiers() {
	check := func(file, name string) {
		if !mixedCase.MatchString(name) {
			return
		}
		for part := range strings.SplitSeq(name, ".") {
			if part != "" && !t.words[part] && !t.tests[part] && !t.files[part] && !t.bases[part] && !elsewhere[part] {
				t.report(file, "there is no identifier", part)
			}
		}
	}
	for file, text := range t.prose {
		if file == "CHANGELOG.md" {
			text = oldNames.ReplaceAllString(text, "")
		}
		each(map[string]string{file: text}, quotedName, check)
	}
	each(t.comments, linkedName, check)
}

func (t *tree) checkLinks() {
	each(t.prose, link, func(file, to string) {
		if strings.HasPrefix(to, "http://") || strings.HasPrefix(to, "https://") {
			return
		}
		target := file
		name, anchor, has := strings.Cut(to, "#")
		if name != "" {
			target = path.Join(path.Dir(file), name)
		}
		switch {
		case !t.files[target]:
			t.report(file, "leads nowhere: the link", to)
		case has && !t.anchors(target)[anchor]:
			t.report(file, "has no such heading: the link", to)
		}
	})
}

// anchors returns the anchors of a document's headings, as GitHub makes them.
func (t *tree) anchors(file string) set {
	all := set{}
	for _, m := range heading.FindAllStringSubmatch(t.documents[file], -1) {
		text := strings.ToLower(headLink.ReplaceAllString(strings.ReplaceAll(m[1], "`", ""), "$1"))
		anchor := strings.ReplaceAll(noAnchor.ReplaceAllString(text, ""), " ", "-")
		for i, next := 1, anchor; all[anchor]; i++ {
			anchor = next + "-" + string(rune('0'+i))
		}
		all[anchor] = true
	}
	return all
}

// checkFlags looks at the flags of the commands of this module, and of its tests.
func (t *tree) checkFlags() {
	for file, text := range t.prose {
		for _, line := range command.FindAllString(text, -1) {
			line, _, _ = strings.Cut(line, " #")
			for _, w := range strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '`' || r == '|' }) {
				if m := flagName.FindStringSubmatch(w); m != nil && !t.flags[m[1]] && !elsewhere[m[1]] {
					t.report(file, "there is no flag", m[1])
				}
			}
		}
	}
}

// checkWords bounds the documents: a reader has an hour at most.
func (t *tree) checkWords() {
	const most, mostOfReadme = 25_000, 900
	total := 0
	for _, text := range t.documents {
		total += len(strings.Fields(text))
	}
	if total > most {
		t.report("the documents", fmt.Sprintf("have more than %d words:", most), fmt.Sprint(total))
	}
	if n := len(strings.Fields(t.documents["README.md"])); n > mostOfReadme {
		t.report("README.md", fmt.Sprintf("has more than %d words:", mostOfReadme), fmt.Sprint(n))
	}
}
