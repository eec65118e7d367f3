package record

import (
	"cmp"
	"context"
	"errors"
)

var (
	// ErrConflict means that a record no longer has the version that the writer read.
	ErrConflict = errors.New("changed since it was read")
	// ErrTooLarge means that a value is larger than MaxValue, or a name than MaxName.
	ErrTooLarge = errors.New("too large")
)

const (
	// MaxValue is the largest value, in bytes.
	MaxValue = 64 << 10
	// MaxName is the longest name with its table, in bytes.
	MaxName = 512
)

// Key is the name of a record.
type Key struct{ Table, Name string }

// Compare orders by table, then by name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Table, o.Table), cmp.Compare(k.Name, o.Name))
}

// Record is a value and its version.
type Record struct {
	Key
	Value []byte
	// Version changes with every write, and is never used again. Empty means that there is no such
	// record.
	Version string
}

// Any is the Version of a Write that replaces any record, or none.
const Any = "*"

// Write is one change of a Commit.
type Write struct {
	Key
	// Value is the new value. Nil deletes the record.
	Value []byte
	// Version is the version that the record must have. Empty means that it must not exist. See Any.
	Version string
}

// Mark is a point in the history of a table. Nil is before the first write. Only the store that
// returned it can use it.
type Mark any

// Store keeps records. Safe for concurrent use.
type Store interface {
	// Get returns a record. Its Version is empty if there is none.
	Get(ctx context.Context, key Key) (Record, error)
	// List returns a consistent snapshot of a table, in the order of names.
	List(ctx context.Context, table string) ([]Record, error)
	// Commit does all writes or none, and returns when they are durable. Each key may be named once.
	// Errors: ErrConflict, ErrTooLarge.
	Commit(ctx context.Context, writes ...Write) error
	// Watch reports commits to a table, also those of other replicas, until ctx ends. Several commits
	// may be reported once. The channel is never closed.
	Watch(ctx context.Context, table string) <-chan struct{}
	// Changes returns the records of a table that changed since a mark, and the mark for the next
	// call. A deleted record has an empty Version. Since nil, it returns all records.
	Changes(ctx context.Context, table string, since Mark) ([]Record, Mark, error)
	// Behind returns why reads may miss writes of other replicas. Nil means that they see every
	// write.
	Behind() error
}
