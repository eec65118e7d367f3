package storage

import "github.com/ashore-mesh/ashore/config"

// Unusable is an object that a store has and this release cannot read: of a kind that it does not
// know, or damaged.
type Unusable struct {
	Key config.Key
	// Why says so, with what to do.
	Why string
}
