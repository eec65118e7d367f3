package identity

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	applyv1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/registry/kube"
)

// The ConfigMap with the roots, as Istio's agents read it. Source: Istio, NamespaceController.
const (
	rootsName  = "istio-ca-root-cert"
	rootsKey   = "root-cert.pem"
	rootsLabel = "istio.io/config"
	manager    = "ashored" // of its fields
)

const (
	// writePause is the time between two writes.
	writePause = 50 * time.Millisecond
	// rewritePause is how soon what others changed is written again, so that two writers do not
	// overwrite each other all the time.
	rewritePause = 10 * time.Second
	// retryPause is the time after a write that failed.
	retryPause = 10 * time.Second
)

// RootWriterConfig configures a RootWriter. All fields are required.
type RootWriterConfig struct {
	Cluster *kube.Cluster
	// Roots returns the mesh's roots, PEM.
	Roots func() []byte
	// Changed reports, until ctx ends, that Roots returns something else.
	Changed func(ctx context.Context) <-chan struct{}
}

// RootWriter writes the mesh's roots into a ConfigMap of each namespace. One replica of a cluster
// runs it at a time. Safe for concurrent use.
type RootWriter struct {
	cfg      RootWriterConfig // immutable
	failures kube.Failures
	wake     chan struct{} // cap 1; written when something may have to be written

	mu         sync.Mutex
	namespaces map[string]bool   // guarded by mu; false: it is terminating. Nil: not listed
	present    map[string]string // guarded by mu: the roots in each namespace; nil: not listed

	latest map[string]write // of each namespace; used by Run alone
}

// write is a write of the roots into a namespace.
type write struct {
	roots string
	at    time.Time
}

// NewRootWriter returns a RootWriter. Call its Run.
func NewRootWriter(c RootWriterConfig) *RootWriter {
	return &RootWriter{cfg: c, wake: make(chan struct{}, 1)}
}

// Run writes until ctx ends: into new namespaces, what others changed or deleted, and new roots.
func (w *RootWriter) Run(ctx context.Context) {
	w.mu.Lock()
	w.namespaces, w.present, w.latest = nil, nil, map[string]write{}
	w.mu.Unlock()
	defer w.failures.Clear() // the next leader has its own
	var watches sync.WaitGroup
	defer watches.Wait()
	core := w.cfg.Cluster.Client.CoreV1()
	watches.Go(func() {
		follow(ctx, w, kube.Resource[*corev1.NamespaceList]{Name: "namespaces", Client: core.Namespaces()}, &w.namespaces,
			func(o *corev1.Namespace) entry[bool] {
				return entry[bool]{o.Name, o.Status.Phase != corev1.NamespaceTerminating}
			})
	})
	watches.Go(func() {
		follow(ctx, w, kube.Resource[*corev1.ConfigMapList]{Name: "configmaps",
			Client: core.ConfigMaps(metav1.NamespaceAll), Fields: "metadata.name=" + rootsName}, &w.present,
			func(o *corev1.ConfigMap) entry[string] { return entry[string]{o.Namespace, o.Data[rootsKey]} })
	})
	changed := w.cfg.Changed(ctx)
	for {
		var again <-chan time.Time
		if pause := w.write(ctx); pause > 0 {
			again = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-w.wake:
		case <-changed:
		}
	}
}

// entry is what is used of an object in a namespace, or of a Namespace.
type entry[V any] struct {
	namespace string
	value     V
}

// follow keeps a map of w up to date with the objects of a kind until ctx ends.
func follow[T kube.Object, V any, L runtime.Object](ctx context.Context, w *RootWriter, r kube.Resource[L],
	m *map[string]V, convert func(T) entry[V]) {
	kube.Watch(ctx, w.cfg.Cluster, r, kube.Handler[T, entry[V]]{
		Convert: convert,
		Replace: func(all []entry[V], _ bool) {
			w.change(func() {
				*m = map[string]V{}
				for _, e := range all {
					(*m)[e.namespace] = e.value
				}
			})
		},
		Set:    func(e entry[V]) { w.change(func() { (*m)[e.namespace] = e.value }) },
		Delete: func(e entry[V]) { w.change(func() { delete(*m, e.namespace) }) },
		Report: func(err error) { w.failures.Note(r.Name, err) },
	})
}

// change changes what is known of the cluster, and wakes Run.
func (w *RootWriter) change(f func()) {
	w.mu.Lock()
	f()
	w.mu.Unlock()
	task.Poke(w.wake)
}

// due returns the namespaces that lack the roots, once all are listed.
func (w *RootWriter) due(roots string) (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.namespaces == nil || w.present == nil {
		return nil
	}
	for namespace, active := range w.namespaces {
		if active && w.present[namespace] != roots {
			out = append(out, namespace)
		}
	}
	return out
}

// write writes what is due. It returns after how long to call it again; zero: after the next change.
func (w *RootWriter) write(ctx context.Context) time.Duration {
	roots, again := string(w.cfg.Roots()), time.Duration(0)
	for _, namespace := range w.due(roots) {
		last := w.latest[namespace]
		if wait := rewritePause - time.Since(last.at); last.roots == roots && wait > 0 {
			again = rewritePause
			continue
		}
		err := w.apply(ctx, namespace, roots)
		if deleted(err) {
			continue // the watch reports that soon
		}
		if ctx.Err() != nil {
			return 0
		}
		if err != nil {
			w.failures.Note("write", w.cfg.Cluster.Explain(err, "create and patch", "configmaps"))
			return retryPause // the others would fail too
		}
		w.latest[namespace] = write{roots, time.Now()}
		if !task.Sleep(ctx, writePause) {
			return 0
		}
	}
	w.failures.Note("write", nil)
	return again
}

// apply writes the roots into a namespace. Other keys and labels of the ConfigMap stay.
func (w *RootWriter) apply(ctx context.Context, namespace, roots string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := w.cfg.Cluster.Client.CoreV1().ConfigMaps(namespace).Apply(ctx, applyv1.ConfigMap(rootsName, namespace).
		WithLabels(map[string]string{rootsLabel: "true"}).WithData(map[string]string{rootsKey: roots}),
		metav1.ApplyOptions{FieldManager: manager, Force: true})
	return err
}

// deleted reports whether a write failed because its namespace is deleted or terminating.
func deleted(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// Problems returns why the roots cannot be written.
func (w *RootWriter) Problems() []feed.Problem {
	return w.failures.Problems("setting attestors.kubernetes",
		"; namespaces of the cluster may lack the ConfigMap "+rootsName)
}
