package feed

import (
	"context"
	"time"
)

// Update replaces everything that a source said before about one group.
type Update[T any] struct {
	// Group is what the source re-reads as one: a file, a Consul service. Unique within the source.
	Group string
	// Items is the whole content of the group. Empty means that the group is gone. Of several items of
	// one key the first counts, and the merger tells of the others.
	Items []T
	// Problems are all that is wrong with the group, and replace what was said before.
	Problems []Problem
	// AsOf is when the content was current at its origin. An older AsOf with a problem is last-known-good.
	AsOf time.Time
	// Edited is when somebody changed the group, or took it away; zero: it is as it was before the source began, or
	// the source does not know.
	Edited time.Time
	// Away is since when the source has not been in touch with the origin of this group, while it may be with that of others;
	// zero: it is, or the Standing of the source tells. Problems that are Stale say why. A group with nothing else may be away for
	// those within it.
	Away time.Time
	// Within names a group of the same source that this one is part of: while the source is not in touch with the origin of that
	// one, it is not with that of this one either. So one group tells for all of a datacenter. Empty: none.
	Within string
	// Mark is the source's own: where the origin stood when the group was so. It is kept with the group, and told to the source at a
	// start (lastgood.Rememberer). Empty: it needs none.
	Mark string
	// Kept says that the content is from before the start: nobody has seen since what is there now, nor what is wrong with it.
	Kept bool
	// Was are the items that the group held before the start and does not hold any more; only in the first batch of a source.
	Was []T
}

// Batch is what a source delivers at once.
type Batch[T any] struct {
	// Source is the name of the source that sent it.
	Source string
	// Full says that groups which are not named here are gone. The first batch of a source is
	// Full, even when it is empty.
	Full bool
	// Updates replace groups. One group stands in it at most once.
	Updates []Update[T]
	// Since is when the change that led to the batch was noticed; zero: unknown.
	Since time.Time
	// Standing, when not nil, replaces what is known of how the source and its origin stand. A batch of nothing else
	// changes no content.
	Standing *Standing
}

// Standing is whether a source is in touch with its origin: a server, a folder.
type Standing struct {
	// Error is what is wrong and what to do, in one line; empty: it is in touch.
	Error string
	// Cause is the same without what is made of its content meanwhile, for when that is over; empty: it is Error.
	Cause string
	// Since is when that began.
	Since time.Time
	// Reading is how many files, or the like, the source is still to read before its next batch; zero: it is not reading many.
	Reading int
	// Lag is how long the last change took from the origin until the source noticed it (Batch.Since), as where it reads
	// from a replica; zero: nobody knows.
	Lag time.Duration
	// Besides is what else is wrong, whether it is in touch or not; nil: nothing. Its Source may be left out.
	Besides *Problem
}

// Source supplies items for as long as it runs.
type Source[T any] interface {
	// Name identifies the source to people: "file:/etc/ashore/config", "consul:dc1".
	Name() string
	// Run sends a Full batch first, then one for every change, until ctx ends; it then returns
	// nil. An outage is reported as a Problem of the groups that it concerns, or where it concerns all of
	// them as a Standing, never as an empty batch. An error means that the source can never work (a wrong setting).
	Run(ctx context.Context, out chan<- Batch[T]) error
}
