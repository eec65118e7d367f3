package config

import (
	"context"
	"errors"

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

// Store keeps objects across restarts. Every write is a revision of the whole store, a decimal
// number that only grows.
type Store interface {
	Source
	// Get returns the object of key. Errors: ErrNotFound.
	Get(ctx context.Context, key Key) (*Object, error)
	// List returns the objects of kind in namespace, in the order of their keys; an empty kind or
	// namespace means all.
	List(ctx context.Context, kind Kind, namespace string) ([]*Object, error)
	// Put creates or replaces one object and returns it with its new revision. When o.Revision is
	// not empty it must be the stored one. Errors: ErrConflict.
	Put(ctx context.Context, o *Object, who string) (*Object, error)
	// Delete removes one object; revision as in Put. Errors: ErrNotFound, ErrConflict.
	Delete(ctx context.Context, key Key, revision, who string) error
	// Apply does all of changes, or none. Errors: ErrNotFound, ErrConflict, naming the object.
	Apply(ctx context.Context, changes []Change, who string) (revision string, err error)
}

// Change is one write of an Apply.
type Change struct {
	// Key names the object.
	Key Key
	// Object is the new content; nil deletes.
	Object *Object
	// Revision, when not empty, is the one that the object must have.
	Revision string
}
