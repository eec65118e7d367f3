package admin

import (
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// MaxApply limits the files of one write to the store, in bytes.
const MaxApply = 64 << 20

// The actions of a write to the store.
const (
	Apply    = "apply"
	Delete   = "delete"
	Rollback = "rollback"
)

// StoreWrite is a write to the store, or its preview.
type StoreWrite struct {
	Action string `json:"action"`
	// Pieces are what Apply and Delete are about.
	Pieces []Piece `json:"pieces,omitempty"`
	// Revision is what Rollback restores, of the object Ref. Nil: of all.
	Revision string `json:"revision,omitempty"`
	Ref      *Ref   `json:"ref,omitempty"`
	// At is a revision of the store: objects that were changed after it are conflicts. Empty: those
	// that change during the write.
	At string `json:"at,omitempty"`
	// MissingOK deletes the objects that exist, although others do not.
	MissingOK bool `json:"missingOK,omitempty"`
}

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
	// Note is what else there is to know, such as that a file defines the object too.
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

// HistoryRequest asks for past writes.
type HistoryRequest struct {
	// Ref is the one object whose writes are listed; nil: all.
	Ref *Ref `json:"ref,omitempty"`
	// Limit is how many revisions there may be, the latest ones; 0: all.
	Limit int `json:"limit"`
	// Differences adds the difference of each change.
	Differences bool `json:"differences,omitempty"`
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
	// Changes are what it did.
	Changes []ObjectChange `json:"changes"`
}
