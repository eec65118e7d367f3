package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/internal/strictyaml"
)

// readYAML reads the documents of a file one by one, so that one with a syntax error does not hide
// those behind it.
func (p *parser) readYAML(data []byte) []document {
	var docs []document
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
				line, text := strictyaml.SyntaxError(part.text, err)
				p.refuse(line+part.offset, text)
				break
			}
			if len(doc.Content) == 1 {
				docs = append(docs, document{root: doc.Content[0], offset: part.offset})
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
