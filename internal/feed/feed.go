package feed

import (
	"context"
	"time"
)

// Update replaces one group of a source.
type Update[T any] struct {
	// Group is the name of a unit that the source reads at once: a file, a Consul service. Unique
	// within the source.
	Group string
	// Items lists the valid items of the group. If several items have the same key, the first is
	// used. An Update with only a Group removes the group.
	Items []T
	// Invalid lists the keys, in the form of Key.String, of items that failed validation. The
	// previous item with this key stays active. Problems explains why.
	Invalid []string
	// Unreadable means that the group cannot be read at all. Its items stay (R1), and Items and
	// Invalid are ignored. Problems has the reason.
	Unreadable bool
	// Problems lists the problems of the group. They replace the previous ones.
	Problems []Problem
}

// Batch is a set of changes that a source sends at once.
type Batch[T any] struct {
	// Source is the name of the source.
	Source string
	// Full means that groups which are not named in Updates are removed.
	Full bool
	// Explicit means that the removals in this batch were requested, such as by deleting an object
	// from the store. They take effect at once, without R3 and R4.
	Explicit bool
	// DataLost means that the origin has lost data. R4 retains whatever this batch removes.
	DataLost bool
	// Updates replaces groups. Each group is named at most once.
	Updates []Update[T]
	// Down is why the source cannot reach its origin (a server, a folder). Its items stay (R2), and
	// the batch has no Updates and is not Full. A nil Down means that the origin is reachable.
	Down error
	// Reading is the number of units (files) still to be read, for operators. Zero if few.
	Reading int
	// Since is when the source received the first change of this batch. Zero if unknown.
	Since time.Time
}

// Source supplies items while it runs.
type Source[T any] interface {
	// Name returns the name of the source: "files", "consul:dc1".
	Name() string
	// Run first sends a Full batch, which may be empty, and then changes. A source that cannot read
	// everything at first sends what it has as a partial batch, and a Full batch later. If it
	// cannot reach the origin, it sends a batch with Down, never an empty one, and retries. Run
	// returns nil when ctx ends. It returns an error only if the source cannot work, such as for an
	// invalid setting.
	Run(ctx context.Context, out chan<- Batch[T]) error
}
