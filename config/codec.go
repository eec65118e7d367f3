package config

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// savedObject is an object as Codec writes it.
type savedObject struct {
	Source   string `json:"source"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Revision string `json:"revision,omitempty"`
	Text     string `json:"text"`
}

// Codec writes objects for a feed.Writer. What it reads has passed Validate as ParseKept does, and
// has its Origin and Revision.
func Codec() feed.Codec[*Object] {
	return feed.Codec[*Object]{Encode: encodeSaved, Decode: decodeSaved}
}

func encodeSaved(o *Object) (json.RawMessage, error) {
	text, err := Encode([]*Object{o})
	if err != nil {
		return nil, err
	}
	return json.Marshal(savedObject{o.Origin.Source, o.Origin.File, o.Origin.Line, o.Revision, string(text)})
}

func decodeSaved(b json.RawMessage) (*Object, error) {
	var saved savedObject
	if err := json.Unmarshal(b, &saved); err != nil {
		return nil, err
	}
	result := ParseKept("saved.yaml", []byte(saved.Text))
	for _, p := range result.Problems {
		if p.IsError() {
			return nil, errors.New(p.String())
		}
	}
	if len(result.Objects) != 1 {
		return nil, fmt.Errorf("it has %d objects, not one", len(result.Objects))
	}
	o := result.Objects[0]
	o.Origin, o.Revision = Origin{Source: saved.Source, File: saved.File, Line: saved.Line}, saved.Revision
	return o, nil
}
