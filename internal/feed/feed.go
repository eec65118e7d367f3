package feed

import (
	"context"
	"time"
)

// Update replaces one group of a source.
type Update[T any] struct {
	// Group is what the source reads as one: a file, a Consul service. Unique within the source.
	Group string
	// Items are all valid items of the group. Of several items with one key the first is used.
	// A group without items, Invalid, Unreadable and Problems is removed.
	Items []T
	// Invalid are the keys, as Key.String writes them, that the group defines but that failed
	// validation. An item that the group supplied before under such a key stays (R1). Problems say
	// what is wrong with them.
	Invalid []string
	// Unreadable means that the group cannot be read at all: its items stay (R1), and Items and
	// Invalid are ignored. Problems say why.
	Unreadable bool
	// Problems are all that is wrong with the group. They replace the former ones.
	Problems []Problem
}

// Batch is what a source delivers at once.
type Batch[T any] struct {
	// Source is the name of the source that sends it.
	Source string
	// Full means that groups which are not named in Updates are removed.
	Full bool
	// Explicit means that somebody asked for the removals in this batch, as by deleting an object
	// from the store: they take effect at once (no R3, no R4).
	Explicit bool
	// Updates replace groups. Each group is named at most once.
	Updates []Update[T]
	// Down is why the source cannot reach its origin (a server, a folder); its items stay (R2). A
	// batch whose Down is nil says that the source reaches it. A batch with Down carries no Updates
	// and is not Full.
	Down error
	// Reading is how many files, or the like, the source still has to read before its next batch;
	// zero when it is not reading many. It is shown to operators.
	Reading int
	// Since is when the source noticed the change that led to this batch; zero when unknown.
	Since time.Time
}

// Source supplies items while it runs.
type Source[T any] interface {
	// Name identifies the source: "file:/etc/ashore/config", "consul:dc1".
	Name() string
	// Run sends a Full batch first, even when it is empty, then a batch for each change, until ctx
	// ends; then it returns nil. A source that cannot read everything at first sends what it can in
	// a batch that is not Full, and is not Synced until it can. When the origin cannot be reached, it
	// sends a batch with Down, never an empty one, and tries again. An error means that the source
	// can never work, such as a wrong setting.
	Run(ctx context.Context, out chan<- Batch[T]) error
}
