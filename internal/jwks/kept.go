package jwks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// maxKept bounds the file of documents.
const maxKept = 16 << 20

// keptFile is the file of documents.
type keptFile struct {
	Version int               `json:"v"`
	Keys    map[string]string `json:"keys"`
}

// readKept reads the file; one that is not there holds nothing. A document that is none any more is
// left out.
func readKept(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	data, _, err := readfile.Read(path, maxKept)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f keptFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Version != 1 {
		return nil, fmt.Errorf("%s: its format %d is unknown", path, f.Version)
	}
	for url, text := range f.Keys {
		if _, err := Parse([]byte(text)); err != nil {
			delete(f.Keys, url)
		}
	}
	return f.Keys, nil
}

// writeKept replaces the file.
func writeKept(path string, texts map[string]string) error {
	data, err := json.Marshal(keptFile{1, texts})
	if err != nil {
		return err
	}
	return wholefile.Write(path, data)
}
