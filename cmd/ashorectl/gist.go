package main

import (
	"strings"

	"github.com/ashore-mesh/ashore/internal/excerpt"
)

// What is shown of Envoy's words: longer ones are cut.
const (
	fewLines   = 3
	fewLetters = 400
)

// gist is what people need of Envoy's words, and whether that is less than all: their first line,
// and the reason where it stands elsewhere. Envoy puts the whole resource before the reason, in
// hundreds of lines.
func gist(words string) (text string, cut bool) {
	words = strings.TrimSpace(words)
	if strings.Count(words, "\n") < fewLines && len(words) <= fewLetters {
		return strings.ReplaceAll(words, "\n", "\n  "), false
	}
	first, _, _ := strings.Cut(words, "\n")
	begin, _, _ := strings.Cut(first, "goo.gle/debug") // what protobuf's text of a resource begins with
	text = clip(strings.TrimRight(begin, " :{"))
	if r := clip(why(words, first)); r != "" && !strings.Contains(text, r) {
		text += "\n  reason: " + r
	}
	return text, true
}

// why is what follows the last "caused by", else the last line that goes on after the resource,
// else what stands in the innermost parentheses of the first line; empty without any.
func why(words, first string) string {
	const by = "caused by "
	if i := strings.LastIndex(words, by); i >= 0 {
		line, _, _ := strings.Cut(words[i+len(by):], "\n")
		return strings.TrimSpace(closed(line))
	}
	if i := strings.LastIndex(words, "\n: "); i >= 0 {
		line, _, _ := strings.Cut(words[i+len("\n: "):], "\n")
		return strings.TrimSpace(line)
	}
	start, deepest, depth := -1, 0, 0
	for i := range len(first) {
		switch first[i] {
		case '(':
			if depth++; depth > deepest && !strings.HasPrefix(first[i:], "(s)") {
				deepest, start = depth, i+1
			}
		case ')':
			depth--
		}
	}
	if start < 0 {
		return ""
	}
	return strings.TrimSpace(closed(first[start:]))
}

// closed is s up to the parenthesis that closes what was opened before it.
func closed(s string) string {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth < 0 {
				return s[:i]
			}
		}
	}
	return s
}

// clip cuts a text that is too long for people.
func clip(s string) string { return excerpt.Of(s, fewLetters) }
