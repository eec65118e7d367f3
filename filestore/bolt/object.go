package bolt

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
)

// objectRecord is a stored object; its key is the key of the record.
type objectRecord struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Created     time.Time         `json:"created,omitzero"`
	Revision    uint64            `json:"revision"`
	// Spec is the encoded protobuf of the kind.
	Spec []byte `json:"spec"`
}

// objectKey is the key of a stored object. NUL sorts before everything that a name may contain, so
// objects are in the order of config.Key.Compare.
func objectKey(k config.Key) []byte {
	return []byte(string(k.Kind) + "\x00" + k.Namespace + "\x00" + k.Name)
}

// parseObjectKey parses an objectKey.
func parseObjectKey(b []byte) (config.Key, error) {
	parts := strings.Split(string(b), "\x00")
	if len(parts) != 3 {
		return config.Key{}, fmt.Errorf("%q is not the key of an object", b)
	}
	return config.Key{Kind: config.Kind(parts[0]), Namespace: parts[1], Name: parts[2]}, nil
}

func encodeObject(o *config.Object, revision uint64) ([]byte, error) {
	spec, err := proto.MarshalOptions{Deterministic: true}.Marshal(o.Spec)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", o.Key, err)
	}
	r := objectRecord{Labels: o.Labels, Annotations: o.Annotations, Created: o.Created, Revision: revision, Spec: spec}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", o.Key, err)
	}
	return b, nil
}

// decodeObject decodes an objectRecord. source is the name of the store.
func decodeObject(source string, key config.Key, value []byte) (*config.Object, error) {
	var r objectRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	info, ok := config.Info(key.Kind)
	if !ok {
		return nil, fmt.Errorf("read %s: unknown kind %q", key, key.Kind)
	}
	o := &config.Object{
		Key: key, Labels: r.Labels, Annotations: r.Annotations, Created: r.Created, Spec: info.NewSpec(),
		Origin: config.Origin{Source: source}, Revision: storage.Revision(r.Revision),
	}
	if err := proto.Unmarshal(r.Spec, o.Spec); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	o.Hash = config.HashOf(o)
	return o, nil
}

// decodeBare decodes the key and the revision only.
func decodeBare(key config.Key, value []byte) (*config.Object, error) {
	var r struct {
		Revision uint64 `json:"revision"`
	}
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return &config.Object{Key: key, Revision: storage.Revision(r.Revision)}, nil
}
