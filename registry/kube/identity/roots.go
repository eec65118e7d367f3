package identity

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// rewritePause is how soon what others changed is written again, so that two writers do not chase
	// each other.
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
	namespaces map[string]bool    // guarded by mu; false: it is terminating. Nil: not listed
	written    map[string]string  // guarded by mu: the roots in each namespace; nil: not listed
	latest     map[string]written // used by Run alone
}

// written is what was written last into a namespace.
type written struct {
	text string
	at   time.Time
}

// NewRootWriter makes one.
func NewRootWriter(c RootWriterConfig) *RootWriter {
	return &RootWriter{cfg: c, wake: make(chan struct{}, 1)}
}

// Run writes until ctx ends: into new namespaces, what others changed or deleted, and new roots.
func (w *RootWriter) Run(ctx context.Context) {
	w.mu.Lock()
	w.namespaces, w.written, w.latest = nil, nil, map[string]written{}
	w.mu.Unlock()
	defer w.failures.Clear() // the next leader has its own
	var watches sync.WaitGroup
	defer watches.Wait()
	watches.Go(func() { w.watchNamespaces(ctx) })
	watches.Go(func() { w.watchConfigMaps(ctx) })
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

// watchNamespaces keeps namespaces up to date.
func (w *RootWriter) watchNamespaces(ctx context.Context) {
	c := w.cfg.Cluster
	set := func(o *corev1.Namespace) { w.namespaces[o.Name] = o.Status.Phase != corev1.NamespaceTerminating }
	kube.Watch(ctx, c, kube.Resource[*corev1.NamespaceList]{Name: "namespaces", Client: c.Client.CoreV1().Namespaces()},
		kube.Handler[*corev1.Namespace]{
			Replace: func(list []*corev1.Namespace) {
				w.change(func() {
					w.namespaces = map[string]bool{}
					for _, o := range list {
						set(o)
					}
				})
			},
			Set:    func(o *corev1.Namespace) { w.change(func() { set(o) }) },
			Delete: func(o *corev1.Namespace) { w.change(func() { delete(w.namespaces, o.Name) }) },
			Report: func(err error) { w.failures.Note("namespaces", err) },
		})
}

// watchConfigMaps keeps written up to date.
func (w *RootWriter) watchConfigMaps(ctx context.Context) {
	c := w.cfg.Cluster
	kube.Watch(ctx, c, kube.Resource[*corev1.ConfigMapList]{Name: "configmaps",
		Client: c.Client.CoreV1().ConfigMaps(metav1.NamespaceAll), Fields: "metadata.name=" + rootsName},
		kube.Handler[*corev1.ConfigMap]{
			Replace: func(list []*corev1.ConfigMap) {
				w.change(func() {
					w.written = map[string]string{}
					for _, o := range list {
						w.written[o.Namespace] = o.Data[rootsKey]
					}
				})
			},
			Set:    func(o *corev1.ConfigMap) { w.change(func() { w.written[o.Namespace] = o.Data[rootsKey] }) },
			Delete: func(o *corev1.ConfigMap) { w.change(func() { delete(w.written, o.Namespace) }) },
			Report: func(err error) { w.failures.Note("configmaps", err) },
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
	if w.namespaces == nil || w.written == nil {
		return nil
	}
	for namespace, active := range w.namespaces {
		if active && w.written[namespace] != roots {
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
		if wait := rewritePause - time.Since(last.at); last.text == roots && wait > 0 {
			again = rewritePause
			continue
		}
		err := w.apply(ctx, namespace, roots)
		if gone(err) {
			continue // its end is reported soon
		}
		if ctx.Err() != nil {
			return 0
		}
		if err != nil {
			w.failures.Note("write", w.cfg.Cluster.Explain(err, "create and patch", "configmaps"))
			return retryPause // the others would fail too
		}
		w.latest[namespace] = written{roots, time.Now()}
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

// gone reports whether a write failed because its namespace is gone or terminating.
func gone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// Problems returns why the roots cannot be written.
func (w *RootWriter) Problems() []feed.Problem {
	return w.failures.Problems("setting attestors.kubernetes",
		"; namespaces of the cluster may lack the ConfigMap "+rootsName)
}
