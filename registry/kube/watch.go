package kube

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

// Handler receives the objects of a Resource. One goroutine calls its functions, one at a time. The
// handler owns what it receives.
type Handler[T runtime.Object] struct {
	// Strip removes what is not used from an object, before it is stored anywhere. May be nil.
	Strip func(T)
	// Replace receives all objects: at first, and after the watch could not continue where it broke.
	// Objects that were there before and are not listed may be deleted, or the API server lost them.
	Replace func([]T)
	// Set receives an object that was created or changed, and Delete one that was deleted.
	Set, Delete func(T)
	// Report receives why the objects cannot be read, and nil once they can be: after Replace, or when
	// a watch continues. It may be called from another goroutine, and several times with the same
	// error.
	Report func(error)
}

// The pause before the next attempt grows from minPause to maxPause.
const minPause, maxPause = 500 * time.Millisecond, 10 * time.Second

// Watch lists and watches a kind of object until ctx ends. If the API server is unreachable, it
// retries and reports. Only the first list and a watch that cannot continue list again.
func Watch[T runtime.Object, L runtime.Object](ctx context.Context, c *Cluster, r Resource[L], h Handler[T]) {
	explain := func(err error) error {
		if ctx.Err() == nil {
			h.Report(c.Explain(err, "list and watch", r.Name))
		}
		return err
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = r.Fields
			list, err := r.Client.List(ctx, o)
			if err != nil {
				return list, explain(err)
			}
			return list, nil // Replace reports it
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = r.Fields
			lists := o.SendInitialEvents != nil
			if lists {
				o.ResourceVersion = "" // the newest: the data may have been lost
			} else if err := r.continues(ctx, o.ResourceVersion); err != nil {
				return nil, explain(err)
			}
			w, err := r.Client.Watch(ctx, o)
			if lists && err == nil {
				return w, nil // the list is still to come
			}
			return w, explain(err)
		},
	}
	// The type of the objects is checked below: a nil *unstructured.Unstructured is not accepted here.
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, c.Client), nil, &store[T]{h},
		cache.ReflectorOptions{Name: r.Name, Backoff: &wait.Backoff{
			Duration: minPause, Factor: 2, Jitter: 0.2, Steps: 10, Cap: maxPause,
		}}).RunWithContext(ctx)
}

// continues returns an error if a watch cannot continue at a version. An API server that lost its data
// accepts a version that it has not reached, and sends nothing.
func (r Resource[L]) continues(ctx context.Context, version string) error {
	list, err := r.Client.List(ctx, metav1.ListOptions{FieldSelector: r.Fields, Limit: 1})
	if err != nil {
		return err
	}
	at, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	order, err := resourceversion.CompareResourceVersion(at.GetResourceVersion(), version)
	if err == nil && order < 0 {
		err = fmt.Errorf("the cluster has lost data: it is at version %s, and was at %s", at.GetResourceVersion(), version)
	}
	return err
}

// store passes what a reflector would store to a Handler.
type store[T runtime.Object] struct{ h Handler[T] }

var _ cache.TransformingStore = (*store[runtime.Object])(nil)

// Transformer implements cache.TransformingStore, for the objects of a list that is streamed.
func (s *store[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if t, ok := o.(T); ok && s.h.Strip != nil {
			s.h.Strip(t)
		}
		return o, nil
	}
}

func (s *store[T]) Replace(all []any, _ string) error {
	out := make([]T, 0, len(all))
	for _, o := range all {
		if t, ok := s.stripped(o); ok {
			out = append(out, t)
		}
	}
	s.h.Replace(out)
	s.h.Report(nil)
	return nil
}

func (s *store[T]) Add(o any) error { return s.Update(o) }

func (s *store[T]) Update(o any) error {
	if t, ok := s.stripped(o); ok {
		s.h.Set(t)
	}
	return nil
}

func (s *store[T]) Delete(o any) error {
	if t, ok := s.stripped(o); ok {
		s.h.Delete(t)
	}
	return nil
}

func (s *store[T]) Resync() error { return nil }

// stripped returns an object without what is not used.
func (s *store[T]) stripped(o any) (T, bool) {
	t, ok := o.(T)
	if ok && s.h.Strip != nil {
		s.h.Strip(t)
	}
	return t, ok
}
