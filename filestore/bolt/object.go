package bolt

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
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

// checkObject refuses what could not be read back. Whether an object makes sense is for config.Validate.
func checkObject(key config.Key, o *config.Object) error {
	if key.Name == "" || key.Namespace == "" || strings.ContainsRune(string(key.Kind)+key.Namespace+key.Name, 0) {
		return fmt.Errorf("write %q: an object needs a namespace and a name, without zero bytes", key)
	}
	info, ok := config.Info(key.Kind)
	if !ok {
		return fmt.Errorf("write %s: unknown kind %q", key, key.Kind)
	}
	if o == nil {
		return nil
	}
	if o.Key != key {
		return fmt.Errorf("write %s: the object's own key is %s", key, o.Key)
	}
	if o.Spec == nil {
		return fmt.Errorf("write %s: it has no spec", key)
	}
	if got, want := o.Spec.ProtoReflect().Descriptor().FullName(), info.NewSpec().ProtoReflect().Descriptor().FullName(); got != want {
		return fmt.Errorf("write %s: its spec is a %s, not a %s", key, got, want)
	}
	return nil
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
		Origin: config.Origin{Source: source}, Revision: formatRevision(r.Revision)}
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
	return &config.Object{Key: key, Revision: formatRevision(r.Revision)}, nil
}

func formatRevision(r uint64) string { return strconv.FormatUint(r, 10) }

// errNoObject is ErrNotFound with what was looked for.
func errNoObject(key config.Key) error {
	return fmt.Errorf("%s: %w", key, config.ErrNotFound)
}

// checkRevision compares the revision that a writer read with the stored object, nil when there is none.
func checkRevision(key config.Key, want string, have *config.Object) error {
	switch {
	case want == "", want == config.Absent && have == nil:
		return nil
	case want == config.Absent:
		return fmt.Errorf("%s: %w: it was created meanwhile, at revision %s; read it", key, config.ErrConflict, have.Revision)
	case have == nil:
		return fmt.Errorf("%s: %w: it is at revision %s no more, it was deleted", key, config.ErrConflict, want)
	case have.Revision != want:
		return fmt.Errorf("%s: %w: it is at revision %s, not %s; read it again", key, config.ErrConflict, have.Revision, want)
	}
	return nil
}

// errTwice is for an Apply that names a key twice.
var errTwice = errors.New("named twice in one write")
