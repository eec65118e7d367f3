package lastgood

import "context"

// Store keeps contents across restarts; filestore/bolt does.
type Store interface {
	// LoadLastGood returns what was kept for a source, by name.
	LoadLastGood(ctx context.Context, source string) (map[string][]byte, error)
	// SaveLastGood keeps contents by name, all at once; nil removes one.
	SaveLastGood(ctx context.Context, source string, contents map[string][]byte) error
}
