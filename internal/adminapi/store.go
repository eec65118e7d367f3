package adminapi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// ObjectStore is the store of configuration.
type ObjectStore interface {
	config.Store
	// Unusable returns the objects that this release cannot read. List leaves them out.
	Unusable(ctx context.Context) ([]storage.Unusable, error)
}

// Store implements admin.Stores. The fields are set before use. Safe for concurrent use.
type Store struct {
	Store     ObjectStore
	Published *Published
	// Sources returns the active sources, the deciding one first.
	Sources func() []feed.SourceStatus
	// Problems returns the problems of sources.
	Problems func() []feed.Problem
	Record   func(audit.Event)
	Log      hclog.Logger
}

var _ admin.Stores = (*Store)(nil)

// Stored implements admin.Stores.
func (k *Store) Stored(ctx context.Context, kind, namespace, name string) ([]admin.Object, error) {
	var info config.KindInfo
	if kind != "" {
		var err error
		if info, err = kindNamed(kind); err != nil {
			return nil, err
		}
	}
	list, err := k.Store.List(ctx, info.Kind, namespace)
	if err != nil {
		return nil, err
	}
	out := []admin.Object{}
	for _, o := range list {
		if name != "" && o.Name != name {
			continue
		}
		shown, err := storedObject(o)
		if err != nil {
			return nil, err
		}
		out = append(out, shown)
	}
	unusable, err := k.Store.Unusable(ctx)
	if err != nil {
		return nil, err
	}
	for _, u := range unusable {
		if (kind == "" || u.Key.Kind == info.Kind) && (namespace == "" || u.Key.Namespace == namespace) &&
			(name == "" || u.Key.Name == name) {
			out = append(out, admin.Object{Kind: string(u.Key.Kind),
				Metadata: admin.Metadata{Name: u.Key.Name, Namespace: u.Key.Namespace}, Unusable: u.Why})
		}
	}
	if name != "" && len(out) == 0 {
		return nil, admin.NewError(admin.ErrNotFound, fmt.Sprintf("the store has no %s %q%s", info.Kind,
			joined(namespace, name), k.elsewhere(info.Kind, namespace, name)))
	}
	return out, nil
}

// storedObject is an object of the store for operators.
func storedObject(o *config.Object) (admin.Object, error) {
	info, known := config.Info(o.Kind)
	if !known { // a store has no others
		return admin.Object{}, fmt.Errorf("show %s: unknown kind", o.Key)
	}
	return objectOf(o, info)
}

// joined is NAMESPACE/NAME, or the name alone.
func joined(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// elsewhere is the end of a sentence about an object that the store lacks: where it is defined
// then.
func (k *Store) elsewhere(kind config.Kind, namespace, name string) string {
	if c := k.Published.Context(); c != nil && namespace != "" {
		if o, found := c.Inputs().Objects.Get(config.Key{Kind: kind, Namespace: namespace, Name: name}); found &&
			o.Origin.Source != k.Store.Name() {
			return fmt.Sprintf(": %s defines the one that is in use", originOf(o))
		}
	}
	return "; \"ashorectl get " + string(kind) + " --store\" lists what it has"
}

// originOf is where an object was read, for people.
func originOf(o *config.Object) string {
	switch {
	case o.Origin.File == "":
		return o.Origin.Source
	case o.Origin.Line == 0:
		return o.Origin.File
	}
	return fmt.Sprintf("%s:%d", o.Origin.File, o.Origin.Line)
}

// notes tells what there is to know of objects that are written to the store, or deleted there:
// which other one is in use.
func (k *Store) notes() func(key config.Key, deleted bool) string {
	order := map[string]int{}
	for i, s := range k.Sources() {
		order[s.Name] = i
	}
	mine, used := order[k.Store.Name()]
	c, refused := k.Published.Context(), sync.OnceValue(k.refused)
	return func(key config.Key, deleted bool) string {
		if !used {
			return "nothing of the store is in use: the setting sources does not name it"
		}
		if c == nil {
			return ""
		}
		o, found := c.Inputs().Objects.Get(key)
		if !found || o.Origin.Source == k.Store.Name() {
			if p, also := refused()[key.String()]; found && deleted && also {
				return fmt.Sprintf("%s has it too, with an error: it takes effect when that is fixed", placeOf(p))
			}
			return ""
		}
		switch at, known := order[o.Origin.Source]; {
		case deleted:
			return fmt.Sprintf("%s defines it too, and that one is in use", originOf(o))
		case known && at < mine:
			return fmt.Sprintf("%s defines it too, and that one stays in use: remove it there", originOf(o))
		}
		return fmt.Sprintf("%s defines it too; the one of the store comes into use", originOf(o))
	}
}

// refused are the objects, as problems call them, that another source than the store has in a form
// that is refused, with what is wrong.
func (k *Store) refused() map[string]feed.Problem {
	out := map[string]feed.Problem{}
	for _, p := range k.Problems() {
		if _, known := out[p.Object]; !known && p.Object != "" && p.Severity == feed.Error &&
			p.Source != k.Store.Name() {
			out[p.Object] = p
		}
	}
	return out
}

// placeOf is where a problem is, for people.
func placeOf(p feed.Problem) string {
	switch {
	case p.File == "":
		return p.Source
	case p.Line == 0:
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// keyOf is the object that is meant by a name. Errors: admin.ErrInvalid.
func keyOf(r admin.Ref) (config.Key, error) {
	info, err := kindNamed(r.Kind)
	if err != nil {
		return config.Key{}, err
	}
	if r.Namespace == "" || r.Name == "" {
		return config.Key{}, admin.NewError(admin.ErrInvalid,
			fmt.Sprintf("%s %q: want a namespace and a name", info.Kind, joined(r.Namespace, r.Name)))
	}
	return config.Key{Kind: info.Kind, Namespace: r.Namespace, Name: r.Name}, nil
}

func refOf(k config.Key) admin.Ref {
	return admin.Ref{Kind: string(k.Kind), Namespace: k.Namespace, Name: k.Name}
}

// storeError makes an error of the store one that says whose fault it is.
func storeError(err error) error {
	switch {
	case errors.Is(err, config.ErrConflict):
		return admin.NewError(admin.ErrConflict, err.Error())
	case errors.Is(err, config.ErrNotFound), errors.Is(err, config.ErrForgotten), errors.Is(err, config.ErrNoRevision):
		return admin.NewError(admin.ErrNotFound, err.Error())
	}
	return err
}
