package config

import (
	"context"
	"errors"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Source supplies objects; see feed.Source for its promises.
type Source = feed.Source[*Object]

var (
	// ErrNotFound says that there is no object of that key.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that an object is not at the revision that the writer read.
	ErrConflict = errors.New("changed since it was read")
)

// Outage is why a store cannot be read, or not be written, and since when. The zero value means
// that it can.
type Outage struct {
	Error string
	Since time.Time
}

// Absent, as the revision of a write, says that there must be no such object yet.
const Absent = "0"

// Store keeps objects across restarts. Every write is a revision of the whole store, a decimal
// number that only grows and begins after 0.
type Store interface {
	Source
	// Get returns the object of key. Errors: ErrNotFound.
	Get(ctx context.Context, key Key) (*Object, error)
	// List returns the objects of kind in namespace, in the order of their keys; an empty kind or
	// namespace means all.
	List(ctx context.Context, kind Kind, namespace string) ([]*Object, error)
	// Apply does all of changes, or none, as one revision. Without changes nothing is written and
	// the present revision returned, for sure: who reads afterwards sees that one or a later one,
	// and a store that cannot tell fails. Errors: ErrNotFound, ErrConflict, naming the object.
	Apply(ctx context.Context, changes []Change, who string) (revision string, err error)
	// History tells of past writes, the latest revision first. A store may forget: whole revisions,
	// the oldest first, and never the latest one.
	History(ctx context.Context, q Query) (Past, error)
}

// Change is one write of an Apply.
type Change struct {
	// Key names the object.
	Key Key
	// Object is the new content; nil deletes.
	Object *Object
	// Revision, when not empty, is the one that the object must have; Absent: there must be none.
	Revision string
}
