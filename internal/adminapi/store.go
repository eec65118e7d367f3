package adminapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/semaphore"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
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
	Record    func(audit.Event)
	Log       hclog.Logger
}

// Routes returns the routes of the calls that k answers. One write, and one preview or history,
// runs at a time: they need much memory.
func (k *Store) Routes() []admin.Route {
	write := admin.Handle(admin.CallWrite, admin.Operator, k.Write)
	preview := admin.Handle(admin.CallPreview, admin.Viewer, k.Preview)
	history := admin.Handle(admin.CallHistory, admin.Viewer, k.History)
	write.MaxBody, write.Turn = admin.MaxApply, semaphore.NewWeighted(1)
	preview.MaxBody, preview.Turn = admin.MaxApply, semaphore.NewWeighted(1)
	history.Turn = preview.Turn
	return []admin.Route{write, preview, history, admin.Handle(admin.CallStored, admin.Viewer, k.Stored)}
}

// Stored lists objects of the store, active or not, and those that cannot be read (Unusable).
// Errors: admin.ErrNotFound for one name, admin.ErrInvalid for the kind.
func (k *Store) Stored(ctx context.Context, q admin.ObjectQuery) ([]admin.Object, error) {
	var kind config.Kind
	if q.Kind != "" {
		info, err := kindNamed(q.Kind)
		if err != nil {
			return nil, err
		}
		kind = info.Kind
	}
	list, err := k.Store.List(ctx, kind, q.Namespace)
	if err != nil {
		return nil, err
	}
	out := []admin.Object{}
	for _, o := range list {
		if !selects(q, o.Key) {
			continue
		}
		shown, err := objectOf(o)
		if err != nil {
			return nil, err
		}
		out = append(out, shown)
	}
	unusable, err := k.Store.Unusable(ctx)
	for _, u := range unusable {
		if (kind == "" || u.Key.Kind == kind) && selects(q, u.Key) {
			out = append(out, admin.Object{Kind: string(u.Key.Kind),
				Metadata: admin.Metadata{Name: u.Key.Name, Namespace: u.Key.Namespace}, Unusable: u.Why})
		}
	}
	if err == nil && q.Name != "" && len(out) == 0 {
		err = admin.NewError(admin.ErrNotFound, "the store has no %s %q: \"ashorectl get %s --store\" lists what it has",
			kind, joined(q.Namespace, q.Name), kind)
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

// elsewhere says where an active object is defined, if that is not in the store.
func (k *Store) elsewhere(key config.Key) string {
	c := k.Published.Context()
	if c == nil {
		return ""
	}
	o := c.Inputs().Objects.At(key)
	if o == nil || o.Origin.Source == k.Store.Name() {
		return ""
	}
	place := o.Origin.Source
	if o.Origin.File != "" {
		place = fmt.Sprintf("%s:%d", o.Origin.File, o.Origin.Line)
	}
	return place + " defines it too: the first of the two in the setting sources is active"
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

// storeError adds the kind of an error of the store.
func storeError(err error) error {
	switch {
	case errors.Is(err, config.ErrConflict):
		return admin.NewError(admin.ErrConflict, "nothing was written, because somebody else wrote: %v. Try again", err)
	case errors.Is(err, config.ErrNotFound), errors.Is(err, config.ErrForgotten), errors.Is(err, config.ErrNoRevision):
		return admin.NewError(admin.ErrNotFound, "%v", err)
	}
	return err
}
