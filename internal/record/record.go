package record

import (
	"context"
	"errors"
)

var (
	// ErrConflict says that a record is not at the version that the writer read.
	ErrConflict = errors.New("changed since it was read")
	// ErrTooLarge says that a value is larger than MaxValue, or a name than MaxName.
	ErrTooLarge = errors.New("too large")
)

const (
	// MaxValue bounds a value, in bytes.
	MaxValue = 64 << 10
	// MaxName bounds a name, in bytes.
	MaxName = 512
)

// Key names a record.
type Key struct{ Table, Name string }

// Record is a value and the version that it was read at.
type Record struct {
	Key
	Value []byte
	// Version changes with every write, and is never that of an earlier value. Empty: there is no
	// such record.
	Version string
}

// Any as the Version of a Write stands for whatever is there, or is not.
const Any = "*"

// Write is one change of a Commit.
type Write struct {
	Key
	// Value is the new one; nil deletes.
	Value []byte
	// Version is the one that the record must have: empty when there must be none. See Any.
	Version string
}

// Store keeps records. Safe for concurrent use.
type Store interface {
	// Get returns a record; its Version is empty when there is none.
	Get(ctx context.Context, key Key) (Record, error)
	// List returns the records of a table in the order of their names, all as of one moment.
	List(ctx context.Context, table string) ([]Record, error)
	// Commit does all writes, or none, and returns when they will survive. No key may stand in it
	// twice. Errors: ErrConflict, ErrTooLarge.
	Commit(ctx context.Context, writes ...Write) error
	// Watch tells, until ctx ends, after each commit that changed something of a table: also one of
	// another replica. Several commits may be told at once. The channel is never closed.
	Watch(ctx context.Context, table string) <-chan struct{}
}
