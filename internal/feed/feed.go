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
	// Items lists the valid items of the group. Of several items with one key the first is used. A
	// group without Items, Invalid, Unreadable and Problems is removed.
	Items []T
	// Invalid lists the keys, in the form of Key.String, of items that failed validation. The
	// previous item of the group with such a key stays (R1). Problems has the reason.
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
	// Updates replaces groups. Each group is named at most once.
	Updates []Update[T]
	// Down is why the source cannot reach its origin (a server, a folder). Its items stay (R2), and
	// the batch has no Updates and is not Full. A nil Down means that the origin is reachable.
	Down error
	// Reading is the number of files, or similar, that the source has yet to read before its next
	// batch. Zero if they are few. It is shown to operators.
	Reading int
	// Since is when the source noticed the change that led to this batch. Zero if unknown.
	Since time.Time
}

// Source supplies items while it runs.
type Source[T any] interface {
	// Name returns the name of the source: "file:/etc/ashore/config", "consul:dc1".
	Name() string
	// Run sends a Full batch first, which may be empty, and then a batch for each change. If a
	// source cannot read everything at first, it sends the rest in a batch that is not Full, and a
	// Full one later. If it cannot reach the origin, it sends a batch with Down, never an empty
	// one, and retries. Run returns nil when ctx ends. It returns an error if the source can never
	// work, such as for a wrong setting.
	Run(ctx context.Context, out chan<- Batch[T]) error
}
