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

// objectRecord is how an object is kept; its key is the record's key.
type objectRecord struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Created     time.Time         `json:"created,omitzero"`
	Revision    uint64            `json:"revision"`
	// Spec is the protobuf of the kind, encoded.
	Spec []byte `json:"spec"`
}

// objectKey is the key of an object's record. NUL sorts before everything that a name may contain, so
// records are in the order of config.Key.Compare.
func objectKey(k config.Key) []byte {
	return []byte(string(k.Kind) + "\x00" + k.Namespace + "\x00" + k.Name)
}

// parseKey is the inverse of objectKey.
func parseKey(b []byte) (config.Key, error) {
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
	b, err := json.Marshal(objectRecord{Labels: o.Labels, Annotations: o.Annotations, Created: o.Created, Revision: revision, Spec: spec})
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", o.Key, err)
	}
	return b, nil
}

// decodeObject reads a record. source is the name of the store.
func decodeObject(source string, key config.Key, value []byte) (*config.Object, error) {
	var r objectRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	info, ok := config.Info(key.Kind)
	if !ok {
		return nil, fmt.Errorf("read %s: unknown kind %q", key, key.Kind)
	}
	o := &config.Object{Key: key, Labels: r.Labels, Annotations: r.Annotations, Created: r.Created, Spec: info.NewSpec(),
		Origin: config.Origin{Source: source}, Revision: storage.Revision(r.Revision)}
	if err := proto.Unmarshal(r.Spec, o.Spec); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	o.Hash = config.HashOf(o)
	return o, nil
}

// bareObject is what a record says of an object besides its content.
func bareObject(key config.Key, value []byte) (*config.Object, error) {
	var r struct {
		Revision uint64 `json:"revision"`
	}
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return &config.Object{Key: key, Revision: storage.Revision(r.Revision)}, nil
}
