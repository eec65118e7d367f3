package adminapi

import (
	"errors"
	"fmt"
	"path"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
)

// elsewhere says why an object of the store is not active: the sources lack the store, or another
// one defines the object. Empty if it is active.
func (a *API) elsewhere(key config.Key) string {
	if _, active := a.Settings.Source(a.Store.Name()); !active {
		return "nothing of the store is active: add {kind: store} to the setting sources"
	}
	if place := a.definedAt(key); place != "" {
		return place + " defines it too: the first of the two in the setting sources is active"
	}
	return ""
}

// definedAt says where an active object is defined outside the store; empty: it is not.
func (a *API) definedAt(key config.Key) string {
	c := a.Published()
	if c == nil {
		return ""
	}
	o := c.Inputs().Objects.At(key)
	switch {
	case o == nil || o.Origin.Source == a.Store.Name():
		return ""
	case o.Origin.File != "":
		return fmt.Sprintf("%s:%d", o.Origin.File, o.Origin.Line)
	}
	return o.Origin.Source
}

// keyOf is the object that is meant by a name. Errors: admin.ErrInvalid.
func keyOf(r admin.Ref) (config.Key, error) {
	info, err := config.KindNamed(r.Kind)
	if err != nil {
		return config.Key{}, invalid("%v", err)
	}
	if r.Namespace == "" || r.Name == "" {
		return config.Key{}, invalid("%s %q: want a namespace and a name", info.Kind,
			path.Join(r.Namespace, r.Name))
	}
	return config.Key{Kind: info.Kind, Namespace: r.Namespace, Name: r.Name}, nil
}

func refOf(k config.Key) admin.Ref {
	return admin.Ref{Kind: string(k.Kind), Namespace: k.Namespace, Name: k.Name}
}

// storeError adds the kind of an error of the store.
func storeError(err error) error {
	switch {
	case errors.Is(err, config.ErrConflict):
		return conflict("nothing was written, because somebody else wrote: %v. Try again", err)
	case errors.Is(err, config.ErrNotFound), errors.Is(err, config.ErrForgotten), errors.Is(err, config.ErrNoRevision):
		return notFound("%v", err)
	}
	return err
}
