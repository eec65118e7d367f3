package config

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
)

// HashOf computes what Object.Hash holds: one number for everything of o that has an effect. It is
// the start of a SHA-256, so different objects with equal hashes are rare, and costly to make. It may change from one release of Ashore to the next and must not be stored.
func HashOf(o *Object) uint64 {
	h := sha256.New()
	for _, s := range []string{string(o.Kind), o.Namespace, o.Name} {
		hashString(h, s)
	}
	hashMap(h, o.Labels)
	hashMap(h, o.Annotations)
	hashNumber(h, uint64(o.Created.UnixNano()))

	// Marshal fails on strings that are not UTF-8 and on missing proto2 fields. Parse lets neither
	// in; for an object made otherwise, what was written until then still tells it from others.
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(o.Spec)
	if err != nil {
		body = append(body, err.Error()...)
	}
	h.Write(body)
	return binary.BigEndian.Uint64(h.Sum(nil))
}

func hashMap(h hash.Hash, m map[string]string) {
	hashNumber(h, uint64(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		hashString(h, k)
		hashString(h, m[k])
	}
}

func hashString(h hash.Hash, s string) {
	hashNumber(h, uint64(len(s)))
	h.Write([]byte(s))
}

func hashNumber(h hash.Hash, n uint64) {
	h.Write(binary.BigEndian.AppendUint64(nil, n))
}
