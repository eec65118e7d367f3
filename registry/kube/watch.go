package kube

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Resource is a kind of object that the API server lists and watches, as a typed client of client-go
// does: Resource[*corev1.PodList]{"pods", c.Client.CoreV1().Pods("")}.
type Resource[L runtime.Object] struct {
	// Name is its plural name, for problems: "pods".
	Name string
	// Client lists and watches it.
	Client interface {
		List(context.Context, metav1.ListOptions) (L, error)
		Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	}
	// Fields is a field selector. Empty selects all.
	Fields string
}

// Handler receives what is used of objects of type T, as values of type V. Its functions, but for
// Report, are called one at a time.
type Handler[T, V any] struct {
	// Convert returns what is used of an object. It is called when an object is read, so that a large
	// list needs little memory. It may change the object.
	Convert func(T) V
	// Replace receives all objects: at first, and after the watch could not continue where it broke.
	// lost means that the API server has lost data: objects that are not listed need not be deleted.
	Replace func(all []V, lost bool)
	// Set receives an object that was created or changed, and Delete one that was deleted.
	Set, Delete func(V)
	// Report receives why the objects cannot be read, and nil once they can be: after Replace, or when
	// a watch continues. It may be called from another goroutine, and several times with the same
	// error.
	Report func(error)
}

// The pause before the next attempt grows from minPause to maxPause.
const minPause, maxPause = 500 * time.Millisecond, 10 * time.Second

// pageSize is how many objects a page of a list has, if the API server cannot stream lists. Only one
// page is in memory as the API server sends it.
const pageSize = 500

// Object is an object of Kubernetes.
type Object interface {
	runtime.Object
	metav1.Object
}

// Watch lists and watches a kind of object until ctx ends. If the API server is unreachable, it
// retries and reports. It lists at first, and when a watch cannot continue.
func Watch[T Object, V any, L runtime.Object](ctx context.Context, c *Cluster, r Resource[L], h Handler[T, V]) {
	explain := func(err error) error {
		if ctx.Err() == nil {
			h.Report(c.Explain(err, "list and watch", r.Name))
		}
		return err
	}
	s := &store[T, V]{h: h}
	listed := false // the watch that follows continues at the list
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = r.Fields
			if o.Limit > 0 { // API servers send pages only of the newest version
				o.ResourceVersion, o.ResourceVersionMatch = "", ""
			}
			list, err := r.Client.List(ctx, o)
			if err != nil {
				return nil, explain(err)
			}
			listed = true
			return s.page(list) // Replace reports it
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = r.Fields
			lists := o.SendInitialEvents != nil
			if lists {
				o.ResourceVersion = "" // the newest: the data may have been lost
			}
			if !listed {
				if err := r.continues(ctx, o.ResourceVersion); err != nil {
					return nil, explain(err)
				}
			}
			if listed = false; !lists {
				s.version = o.ResourceVersion
			}
			w, err := r.Client.Watch(ctx, o)
			if lists && (err == nil || apierrors.IsInvalid(err)) {
				return w, err // the list is still to come, or is read in pages because it cannot be streamed
			}
			return w, explain(err)
		},
	}
	// The type of the objects is checked below: a nil *unstructured.Unstructured is not accepted here.
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, c.Client), nil, s,
		cache.ReflectorOptions{Name: r.Name, Backoff: &wait.Backoff{
			Duration: minPause, Factor: 2, Jitter: 0.2, Steps: 10, Cap: maxPause,
		}})
	reflector.WatchListPageSize = pageSize
	reflector.RunWithContext(ctx)
}

// continues returns an error if the API server does not answer, or a watch cannot continue at a
// version, which may be empty. Source: client-go, rest.Request.Watch, which returns an empty watch and
// no error after a timeout. An API server that lost its data accepts a version that it has not
// reached, and sends nothing.
func (r Resource[L]) continues(ctx context.Context, version string) error {
	list, err := r.Client.List(ctx, metav1.ListOptions{FieldSelector: r.Fields, Limit: 1})
	if err != nil {
		return err
	}
	at, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	if before(at.GetResourceVersion(), version) {
		return fmt.Errorf("the cluster has lost data: it is at version %s, and was at %s", at.GetResourceVersion(), version)
	}
	return nil
}

// before reports whether version a of a resource is older than b, which may be empty.
func before(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// store passes what a reflector would store to a Handler.
type store[T Object, V any] struct {
	h       Handler[T, V]
	version string // the newest that the API server is known to have had; empty before the first list
}

// converted is a converted object while the list that it is in is read.
type converted[V any] struct {
	namespace, name string
	value           V
}

var (
	_ cache.TransformingStore   = (*store[Object, any])(nil)
	_ runtime.Object            = (*converted[any])(nil)
	_ metav1.ObjectMetaAccessor = (*converted[any])(nil)
)

// GetObjectMeta implements metav1.ObjectMetaAccessor: a reflector finds objects by their names.
func (c *converted[V]) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}
}

// GetObjectKind implements runtime.Object.
func (c *converted[V]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Nobody changes a converted.
func (c *converted[V]) DeepCopyObject() runtime.Object { return c }

// convert converts an object of a list.
func (s *store[T, V]) convert(t T) *converted[V] {
	return &converted[V]{t.GetNamespace(), t.GetName(), s.h.Convert(t)}
}

// Transformer implements cache.TransformingStore, for the objects of a list that is streamed.
func (s *store[T, V]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if t, ok := o.(T); ok {
			return s.convert(t), nil
		}
		return o, nil
	}
}

// page converts a page of a list.
func (s *store[T, V]) page(list runtime.Object) (runtime.Object, error) {
	head, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	out := &internalversion.List{ListMeta: metav1.ListMeta{
		ResourceVersion: head.GetResourceVersion(), Continue: head.GetContinue(),
	}}
	return out, meta.EachListItemWithAlloc(list, func(o runtime.Object) error {
		if t, ok := o.(T); ok {
			out.Items = append(out.Items, s.convert(t))
		}
		return nil
	})
}

func (s *store[T, V]) Replace(all []any, version string) error {
	out := make([]V, 0, len(all))
	for _, o := range all {
		if c, ok := o.(*converted[V]); ok {
			out = append(out, c.value)
		}
	}
	lost := before(version, s.version)
	s.version = version
	s.h.Replace(out, lost)
	s.h.Report(nil)
	return nil
}

func (s *store[T, V]) Add(o any) error { return s.Update(o) }

func (s *store[T, V]) Update(o any) error {
	if t, ok := o.(T); ok {
		s.h.Set(s.h.Convert(t))
	}
	return nil
}

func (s *store[T, V]) Delete(o any) error {
	if t, ok := o.(T); ok {
		s.h.Delete(s.h.Convert(t))
	}
	return nil
}

func (s *store[T, V]) Resync() error { return nil }
