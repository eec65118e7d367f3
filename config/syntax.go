package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readYAML reads the documents of a file one by one, so that one with a syntax error does not hide
// those behind it.
func (p *parser) readYAML(data []byte) []lines {
	var docs []lines
	parts := splitYAML(data)
	if len(parts) > MaxDocuments {
		p.refuse(parts[MaxDocuments].offset+1,
			fmt.Sprintf("the file has %d documents, more than %d: split it into several files", len(parts),
				MaxDocuments))
		return nil
	}
	for _, part := range parts {
		dec := yaml.NewDecoder(bytes.NewReader(part.text))
		for {
			var doc yaml.Node
			err := dec.Decode(&doc)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				p.syntaxError(err, part)
				break
			}
			if len(doc.Content) == 1 {
				docs = append(docs, lines{root: doc.Content[0], offset: part.offset})
			}
		}
	}
	return docs
}

// part is a piece of a YAML file that can be read by itself.
type part struct {
	text   []byte
	offset int // the lines before it
}

// splitYAML splits data before every line that begins with the document marker. Such a line is one
// wherever it stands, also within quoted and block text.
// Source: https://yaml.org/spec/1.2.2/#914-explicit-documents (c-forbidden).
func splitYAML(data []byte) []part {
	var parts []part
	begin, beginLine, line := 0, 0, 0
	cut := func(end int) {
		if text := data[begin:end]; hasContent(text) {
			parts = append(parts, part{text, beginLine})
		}
		begin, beginLine = end, line
	}
	for at := 0; at < len(data); line++ {
		if at > 0 && isMarker(data[at:]) {
			cut(at)
		}
		n := bytes.IndexByte(data[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
	}
	cut(len(data))
	return parts
}

// isMarker says that a line is the marker of a document's beginning.
func isMarker(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0)
}

// hasContent says that a part has more than comments, directives and blank lines.
func hasContent(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' && !bytes.Equal(line, []byte("---")) {
			return true
		}
	}
	return false
}

// syntaxError reports what the YAML reader said, in the file's own line numbers.
func (p *parser) syntaxError(err error, part part) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line, near := 1, ""
	if m := regexp.MustCompile(`^line (\d+): (?s:(.*))$`).FindStringSubmatch(text); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			line, text, near = n, m[2], " near this line"
		}
	}
	if tabIndented(part.text, line) {
		p.refuse(line+part.offset, "a tab where YAML wants spaces: replace it with spaces")
		return
	}
	if strings.HasSuffix(text, "<document start>") {
		p.refuse(line+part.offset, "a second object begins near this line: write --- before it, or one List")
		return
	}
	if strings.HasPrefix(text, "unknown anchor") { // it would quote the file, which may be any
		text = "an alias (*name) has no anchor (&name) before it"
	}
	text = strings.TrimSpace(strings.ReplaceAll(text, "\n", " "))
	p.refuse(line+part.offset, fmt.Sprintf("not valid YAML%s: %s", near, text))
}

// tabIndented says that a line begins with blanks of which one is a tab.
func tabIndented(text []byte, line int) bool {
	for l := range bytes.Lines(text) {
		if line--; line == 0 {
			indent := l[:len(l)-len(bytes.TrimLeft(l, " \t"))]
			return bytes.ContainsRune(indent, '\t')
		}
	}
	return false
}
