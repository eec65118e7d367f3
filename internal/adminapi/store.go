package adminapi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/semaphore"

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

// Store writes and reads the store of configuration. The fields are set before use. Safe for
// concurrent use.
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

// Routes returns the routes of the calls that k answers. One write, and one preview or difference,
// runs at a time: they need much memory.
func (k *Store) Routes() []admin.Route {
	write := admin.Handle(admin.CallWrite, admin.Operator, k.Write)
	write.MaxBody, write.Turn = admin.MaxApply, semaphore.NewWeighted(1)
	preview := admin.Handle(admin.CallPreview, admin.Viewer, k.Preview)
	preview.MaxBody, preview.Turn = admin.MaxApply, semaphore.NewWeighted(1)
	differences := admin.Handle(admin.CallDifferences, admin.Viewer, k.History)
	differences.Turn = preview.Turn
	return []admin.Route{write, preview, differences, admin.Handle(admin.CallStored, admin.Viewer, k.Stored),
		admin.Handle(admin.CallHistory, admin.Viewer, k.History)}
}

// Stored lists objects of the store, active or not, and those that cannot be read (Unusable).
// Errors: admin.ErrNotFound for one name, admin.ErrInvalid for the kind.
func (k *Store) Stored(ctx context.Context, q admin.ObjectQuery) ([]admin.Object, error) {
	var info config.KindInfo
	if q.Kind != "" {
		var err error
		if info, err = kindNamed(q.Kind); err != nil {
			return nil, err
		}
	}
	list, err := k.Store.List(ctx, info.Kind, q.Namespace)
	if err != nil {
		return nil, err
	}
	out := []admin.Object{}
	for _, o := range list {
		if !selects(q, o.Key) {
			continue
		}
		info, _ := config.Info(o.Kind) // a store has no others
		shown, err := objectOf(o, info)
		if err != nil {
			return nil, err
		}
		out = append(out, shown)
	}
	unusable, err := k.Store.Unusable(ctx)
	for _, u := range unusable {
		if (q.Kind == "" || u.Key.Kind == info.Kind) && selects(q, u.Key) {
			out = append(out, admin.Object{Kind: string(u.Key.Kind),
				Metadata: admin.Metadata{Name: u.Key.Name, Namespace: u.Key.Namespace}, Unusable: u.Why})
		}
	}
	if err == nil && q.Name != "" && len(out) == 0 {
		err = admin.NewError(admin.ErrNotFound, "the store has no %s %q%s", info.Kind, joined(q.Namespace, q.Name),
			k.elsewhere(info.Kind, q.Namespace, q.Name))
	}
	return out, err
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
			return ": " + originOf(o) + " defines the one that is in use"
		}
	}
	return "; \"ashorectl get " + string(kind) + " --store\" lists what it has"
}

// position is where something was read, for operators.
func position(source, file string, line int) string {
	switch {
	case file == "":
		return source
	case line == 0:
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

func originOf(o *config.Object) string {
	return position(o.Origin.Source, o.Origin.File, o.Origin.Line)
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
				return fmt.Sprintf("%s has it too, with an error: it takes effect when that is fixed", position(p.Source, p.File, p.Line))
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

// keyOf is the object that is meant by a name. Errors: admin.ErrInvalid.
func keyOf(r admin.Ref) (config.Key, error) {
	info, err := kindNamed(r.Kind)
	if err != nil {
		return config.Key{}, err
	}
	if r.Namespace == "" || r.Name == "" {
		return config.Key{}, admin.NewError(admin.ErrInvalid, "%s %q: want a namespace and a name", info.Kind,
			joined(r.Namespace, r.Name))
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
		return admin.NewError(admin.ErrConflict, "%v", err)
	case errors.Is(err, config.ErrNotFound), errors.Is(err, config.ErrForgotten), errors.Is(err, config.ErrNoRevision):
		return admin.NewError(admin.ErrNotFound, "%v", err)
	}
	return err
}
