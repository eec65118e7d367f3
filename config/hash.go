package config

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// HashOf computes what Object.Hash holds: the start of a SHA-256 of everything of o that has an
// effect: labels, annotations, created and spec. Different objects with equal hashes are rare, and
// costly to make. It may change from one release of Ashore to the next.
func HashOf(o *Object) uint64 {
	body, err := Marshal(&Object{Key: o.Key, Labels: o.Labels, Annotations: o.Annotations, Created: o.Created, Spec: o.Spec})
	if err != nil { // text that is not UTF-8: Parse and Accept let none in
		body = fmt.Append(nil, o.Key, err)
	}
	sum := sha256.Sum256(body)
	return binary.BigEndian.Uint64(sum[:])
}
