package admin

import (
	"context"
	"iter"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

const (
	// MaxApply bounds the files of one write to the store, in bytes, all together.
	MaxApply = 64 << 20
	// storePaths is what the paths of the store begin with.
	storePaths = "/v1/store/"
)

// Ref names an object, as operators name kinds.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String is "VirtualService shop/web".
func (r Ref) String() string { return r.Kind + " " + r.Namespace + "/" + r.Name }

// Piece is a part of a write to the store: a file of configuration as it was written, or the name
// of an object.
type Piece struct {
	// File is the file's name for messages; its extension tells how to read it.
	File string `json:"file,omitempty"`
	Data []byte `json:"data,omitempty"`
	// Ref names an object to delete.
	Ref *Ref `json:"ref,omitempty"`
}

// Pieces are those of one write, as they come. An error is the last one.
type Pieces = iter.Seq2[Piece, error]

// StoreOptions say how to write.
type StoreOptions struct {
	// Preview writes nothing and tells what would be written, with the differences.
	Preview bool
	// At is a revision of the store: objects that were changed after it are conflicts. Empty: those
	// that change during the write.
	At string
	// Force writes whatever others write meanwhile.
	Force bool
	// MissingOK deletes what is there, where some of it is not.
	MissingOK bool
}

// The actions on an object.
const (
	Created   = "created"
	Changed   = "changed"
	Deleted   = "deleted"
	Unchanged = "unchanged"
	// Missing is what is to be deleted, or to be as it was, and is not there.
	Missing = "not there"
)

// ObjectChange is what a write does to one object.
type ObjectChange struct {
	Ref
	// Action is one of above.
	Action string `json:"action"`
	// Difference is the text of the object before and after, as "diff -u" shows it; only where it
	// is asked for.
	Difference string `json:"difference,omitempty"`
	// Note is what else there is to know, such as that a file defines the object too, and is in
	// use.
	Note string `json:"note,omitempty"`
}

// Written is what a write to the store did, or would do.
type Written struct {
	// Revision is the store's: after the write, or the present one when nothing was written.
	Revision string `json:"revision"`
	// Preview says that nothing was written.
	Preview bool           `json:"preview,omitempty"`
	Changes []ObjectChange `json:"changes"`
	// Warnings are of the files.
	Warnings []feed.Problem `json:"warnings,omitempty"`
}

// Conflict is an object that somebody else changed.
type Conflict struct {
	Ref
	// Revision is the one at which it was changed, by whom and when.
	Revision string    `json:"revision"`
	Who      string    `json:"who,omitempty"`
	When     time.Time `json:"when,omitzero"`
}

// Refusal is why a write to the store was not done, none of it.
type Refusal struct {
	// Text says it in one line, and Is is ErrInvalid, ErrConflict or another of the errors of this
	// package.
	Text string
	Is   error
	// Problems are what is wrong with the files, warnings too.
	Problems []feed.Problem
	// Conflicts are what others changed.
	Conflicts []Conflict
}

func (r *Refusal) Error() string { return r.Text }
func (r *Refusal) Unwrap() error { return r.Is }

// RollbackRequest asks for what the store held at a revision.
type RollbackRequest struct {
	Revision string `json:"revision"`
	// Ref is the one object that is meant; nil: all.
	Ref *Ref `json:"ref,omitempty"`
}

// HistoryRequest asks for past writes.
type HistoryRequest struct {
	// Ref is the one object that is meant; nil: all.
	Ref *Ref
	// Limit is how many revisions there may be, the latest ones; 0: all.
	Limit int
	// Differences asks for these, and All for all changes of large revisions.
	Differences, All bool
}

// StoreHistory is what the store remembers of its writes.
type StoreHistory struct {
	// Latest is the present revision, and Since the oldest to which there is a way back.
	Latest string `json:"latest"`
	Since  string `json:"since"`
	// Revisions are the latest first.
	Revisions []StoreRevision `json:"revisions"`
}

// StoreRevision is one past write.
type StoreRevision struct {
	Revision string    `json:"revision"`
	Who      string    `json:"who"`
	When     time.Time `json:"when"`
	// Changes are what it did; of many only the first, unless all are asked for.
	Changes []ObjectChange `json:"changes"`
	// Count is how many objects it wrote, by action.
	Count map[string]int `json:"count"`
}

// Stores writes and reads the store of configuration. Safe for concurrent use. The errors of what
// writes are often a *Refusal.
type Stores interface {
	// Stored lists objects of the store, in use or not, and those that cannot be read (Unusable);
	// an empty kind, namespace or name means all. Errors: ErrNotFound for one name, ErrInvalid for
	// the kind.
	Stored(ctx context.Context, kind, namespace, name string) ([]Object, error)
	// Apply writes the objects of files, all or none. Errors: ErrInvalid, ErrConflict.
	Apply(ctx context.Context, p Pieces, o StoreOptions, who string) (Written, error)
	// Delete deletes the objects of files, or those that are named, all or none. Errors:
	// ErrInvalid, ErrConflict, ErrNotFound.
	Delete(ctx context.Context, p Pieces, o StoreOptions, who string) (Written, error)
	// Rollback writes what the store held at a revision. Errors: ErrInvalid, ErrConflict,
	// ErrNotFound.
	Rollback(ctx context.Context, r RollbackRequest, o StoreOptions, who string) (Written, error)
	// History tells of past writes. Errors: ErrInvalid.
	History(ctx context.Context, r HistoryRequest) (StoreHistory, error)
}
