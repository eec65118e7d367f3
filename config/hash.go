package config

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// HashOf computes what Object.Hash holds: the start of the Digest. Different objects with equal
// hashes are rare, and costly to make.
func HashOf(o *Object) uint64 {
	sum := Digest(o)
	return binary.BigEndian.Uint64(sum[:])
}

// Digest is a SHA-256 of everything of o that has an effect: labels, annotations, created and spec.
// It may change from one release of Ashore to the next.
func Digest(o *Object) [sha256.Size]byte {
	body, err := Marshal(&Object{Key: o.Key, Labels: o.Labels, Annotations: o.Annotations, Created: o.Created, Spec: o.Spec})
	if err != nil { // text that is not UTF-8: Parse and Accept let none in
		body = fmt.Append(nil, o.Key, err)
	}
	return sha256.Sum256(body)
}
