package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// readJSON reads JSON values that follow one another as documents. An error hides what follows it.
func (p *parser) readJSON(data []byte) []lines {
	r := newJSONReader(data)
	var docs []lines
	for {
		n, err := r.value(0)
		if errors.Is(err, io.EOF) {
			return docs
		}
		if err != nil {
			p.refuse(r.line(), fmt.Sprintf("not valid JSON near this line: %s", err))
			return docs
		}
		if len(docs) == MaxDocuments {
			p.refuse(r.line(), fmt.Sprintf("the file has more than %d documents: split it into several files",
				MaxDocuments))
			return nil
		}
		docs = append(docs, lines{root: n})
	}
}

// jsonReader makes the same nodes of JSON as the YAML reader makes of YAML, so that lines are known
// and keys that stand twice are seen.
type jsonReader struct {
	data []byte
	dec  *json.Decoder
	// counted and at are the lines that were counted up to an offset.
	counted int
	at      int64
}

func newJSONReader(data []byte) *jsonReader {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return &jsonReader{data: data, dec: dec, counted: 1}
}

// line is that of the last token read.
func (r *jsonReader) line() int {
	end := min(r.dec.InputOffset(), int64(len(r.data)))
	r.counted += bytes.Count(r.data[r.at:end], []byte("\n"))
	r.at = end
	return r.counted
}

// value reads one value. Errors: io.EOF when there is none at depth 0.
func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	token, err := r.dec.Token()
	if err != nil {
		if depth > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if depth > MaxDepth {
		return nil, fmt.Errorf("values nest deeper than %d levels", MaxDepth)
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line()}
	switch t := token.(type) {
	case json.Delim:
		return n, r.container(n, t, depth)
	case string:
		n.Tag, n.Value = "!!str", t
		if !utf8.ValidString(t) {
			return nil, errors.New("text is not UTF-8")
		}
	case json.Number:
		n.Tag, n.Value = numberTag(t.String()), t.String()
	case bool:
		n.Tag, n.Value = "!!bool", fmt.Sprint(t)
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, nil
}

// container reads what stands between brackets, the opening one being read.
func (r *jsonReader) container(n *yaml.Node, open json.Delim, depth int) error {
	n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
	if open == '{' {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	for r.dec.More() {
		if open == '{' {
			key, err := r.value(depth + 1)
			if err != nil {
				return err
			}
			n.Content = append(n.Content, key)
		}
		v, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		n.Content = append(n.Content, v)
	}
	_, err := r.dec.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// numberTag tells whole numbers from others as YAML does.
func numberTag(text string) string {
	if bytes.ContainsAny([]byte(text), ".eE") {
		return "!!float"
	}
	return "!!int"
}
