package storage

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ashore-mesh/ashore/config"
)

// ObjectKey is the key of a stored object. NUL sorts before everything that a name may contain, so
// objects are in the order of config.Key.Compare.
func ObjectKey(k config.Key) string {
	return string(k.Kind) + "\x00" + k.Namespace + "\x00" + k.Name
}

// ParseObjectKey parses an ObjectKey.
func ParseObjectKey(s string) (config.Key, error) {
	parts := strings.Split(s, "\x00")
	if len(parts) != 3 {
		return config.Key{}, fmt.Errorf("%q is not the key of an object", s)
	}
	return config.Key{Kind: config.Kind(parts[0]), Namespace: parts[1], Name: parts[2]}, nil
}

// EncodeObject returns an object as it is stored, at a revision.
func EncodeObject(o *config.Object, revision uint64) ([]byte, error) {
	stored := *o
	stored.Revision, stored.Origin = Revision(revision), config.Origin{}
	return config.Marshal(&stored)
}

// DecodeObject decodes what EncodeObject returned. source is the name of the store.
func DecodeObject(source string, key config.Key, value []byte) (*config.Object, error) {
	o, err := config.Unmarshal(value)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	if o.Key != key {
		return nil, fmt.Errorf("read %s: it is stored as %s", o.Key, key)
	}
	o.Origin = config.Origin{Source: source}
	o.Hash = config.HashOf(o)
	return o, nil
}

// decodeBare decodes the key and the revision only.
func decodeBare(key config.Key, value []byte) (*config.Object, error) {
	var r struct {
		Revision string `json:"revision"`
	}
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return &config.Object{Key: key, Revision: r.Revision}, nil
}
