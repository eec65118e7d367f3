package services

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/kube"
)

type (
	batch  = feed.Batch[registry.Instances]
	update = feed.Update[registry.Instances]
)

// gap is the shortest time between two batches. The first change after a quiet period is sent at
// once.
const gap = 5 * time.Millisecond

// syncer turns the events of a cluster into feed batches. The goroutine of loop owns the state.
// Watches run in their own goroutines and send changes.
type syncer struct {
	cluster *kube.Cluster   // immutable
	publish func(selection) // immutable

	running sync.WaitGroup // the goroutines of all watches
	changes kube.Changes   // received by loop

	// The rest is owned by loop.

	objects *objects
	kinds   []*kind
	restart func()           // lists all objects again
	updates map[key]struct{} // the services that changed since the last batch

	since      time.Time // when the first change after the last batch arrived
	pause      time.Time // the next batch is sent then, or later
	full       bool      // the last lists were sent in a Full batch
	dataLost   bool      // the API server has lost data since the last Full batch
	outageSent string    // the error of the last batch; empty if it had none
	warned     []feed.Problem
	published  selection
}

// kind is the state of the watch of one kind of objects.
type kind struct {
	listed bool
	err    string // why the objects cannot be read; empty if they can
	// without is what is missing if the cluster does not allow to read these objects. Empty if nothing
	// works without them. warning is why they cannot be read.
	without, warning string
}

// start begins with no objects, and starts the watches until ctx ends.
func (s *syncer) start(parent context.Context) {
	ctx, stop := context.WithCancel(parent)
	s.restart = func() {
		stop()
		s.start(parent)
	}
	o := newObjects(s.cluster)
	s.objects, s.kinds, s.full = o, nil, false
	core, discovery := s.cluster.Client.CoreV1(), s.cluster.Client.DiscoveryV1()
	watchKind(ctx, s, kube.Resource[*corev1.ServiceList]{Name: "services", Client: core.Services("")},
		stripService, o.setService, "")
	watchKind(ctx, s, kube.Resource[*discoveryv1.EndpointSliceList]{Name: "endpointslices",
		Client: discovery.EndpointSlices("")}, newSlice, o.setSlice, "")
	watchKind(ctx, s, kube.Resource[*corev1.PodList]{Name: "pods", Client: core.Pods(""),
		Fields: "status.phase!=Succeeded,status.phase!=Failed"}, stripPods(o.options.Cluster), o.setPod, "")
	watchKind(ctx, s, kube.Resource[*corev1.NodeList]{Name: "nodes", Client: core.Nodes()},
		stripNode, o.setNode, "endpoints have no locality, unless their Pods have the label "+localityLabel)
	watchKind(ctx, s, kube.Resource[*corev1.NamespaceList]{Name: "namespaces", Client: core.Namespaces()},
		stripNamespace, o.setNamespace, "labels and annotations of namespaces have no effect on services")
}

// watchKind watches one kind of objects until ctx ends. strip returns what is used of an object, and
// set sets it. without is kind.without.
func watchKind[T kube.Object, V any, L runtime.Object](ctx context.Context, s *syncer, r kube.Resource[L],
	strip func(T) V, set func(x V, deleted bool), without string) {
	k := &kind{without: without}
	s.kinds = append(s.kinds, k)
	change := func(deleted bool, all ...V) {
		if s.since.IsZero() {
			s.since = time.Now()
		}
		for _, x := range all {
			set(x, deleted)
		}
	}
	s.running.Go(func() {
		kube.Watch(ctx, s.cluster, r, kube.Handler[T, V]{
			Convert: strip,
			Replace: func(all []V, lost bool) {
				s.changes.Do(ctx, func() {
					s.dataLost = s.dataLost || lost
					if k.listed && k.warning == "" {
						s.restart() // the other kinds may have lost their objects too, and not know it yet
						return
					}
					change(false, all...)
					k.listed, k.warning = true, ""
				})
			},
			Set:    func(x V) { s.changes.Do(ctx, func() { change(false, x) }) },
			Delete: func(x V) { s.changes.Do(ctx, func() { change(true, x) }) },
			Report: func(err error) { s.changes.Do(ctx, func() { k.report(err) }) },
		})
	})
}

// report sets why the objects cannot be read, or that they can.
func (k *kind) report(err error) {
	switch {
	case err == nil:
		k.err, k.warning = "", ""
	case k.without != "" && apierrors.IsForbidden(err):
		k.listed, k.err, k.warning = true, "", err.Error()+"; "+k.without
	default:
		k.err = err.Error()
	}
}

// loop applies changes and sends batches until ctx ends.
func (s *syncer) loop(ctx context.Context, out chan<- batch) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		b, ok := s.next()
		to := out
		if !ok {
			to = nil
		}
		if wait := time.Until(s.pause); wait > 0 {
			timer.Reset(wait)
		}
		select {
		case <-ctx.Done():
			return
		case to <- b:
			s.sent(b)
		case change := <-s.changes:
			change()
		case <-timer.C:
		}
	}
}

// next returns the batch to send now, if there is one.
func (s *syncer) next() (b batch, ok bool) {
	b.Source = s.cluster.Name
	if outage := s.outage(); outage != "" {
		b.Down = errors.New(outage)
		return b, outage != s.outageSent
	}
	if s.loading() || time.Now().Before(s.pause) {
		return b, false
	}
	for _, k := range s.objects.convert() {
		s.updates[k] = struct{}{}
	}
	if s.published != s.objects.selection {
		s.published = s.objects.selection
		s.publish(s.published)
	}
	b.Full, b.Explicit, b.Since = !s.full, s.full, s.since
	b.DataLost = b.Full && s.dataLost
	warnings := s.warnings()
	if b.Full {
		s.updates = s.objects.used()
	}
	for k := range s.updates {
		b.Updates = append(b.Updates, s.update(k))
	}
	if b.Full && len(warnings) > 0 || !slices.Equal(warnings, s.warned) {
		b.Updates = append(b.Updates, update{Group: warningGroup, Problems: warnings})
	}
	slices.SortFunc(b.Updates, func(a, b update) int { return cmp.Compare(a.Group, b.Group) })
	if ok = b.Full || len(b.Updates) > 0 || s.outageSent != ""; !ok {
		s.since = time.Time{} // the changes were of no interest
	}
	return b, ok
}

// sent records that a batch was sent.
func (s *syncer) sent(b batch) {
	if b.Down != nil {
		s.outageSent = b.Down.Error()
		return
	}
	if b.Full {
		s.full, s.dataLost = true, false
		s.cluster.Log.Info("loaded the services of the cluster", "services", len(b.Updates))
	}
	s.outageSent, s.since, s.warned = "", time.Time{}, s.warnings()
	s.updates = map[key]struct{}{}
	s.pause = time.Now().Add(gap)
}

// outage returns why a kind of objects cannot be read, or an empty text.
func (s *syncer) outage() string {
	for _, k := range s.kinds {
		if k.err != "" {
			return k.err
		}
	}
	return ""
}

// loading reports whether a kind of objects was not listed yet.
func (s *syncer) loading() bool {
	return slices.ContainsFunc(s.kinds, func(k *kind) bool { return !k.listed })
}

// update returns the group of a service. It has no items if there is no such service.
func (s *syncer) update(k key) update {
	u := update{Group: k.String()}
	if svc := s.objects.services[k]; svc != nil {
		u.Items, u.Problems = svc.mesh.instances, svc.mesh.problems
	}
	return u
}

// warningGroup is the group of the problems of a cluster. No service has this name.
const warningGroup = "rights"

// warnings returns the problems of the cluster.
func (s *syncer) warnings() (out []feed.Problem) {
	for _, k := range s.kinds {
		if k.warning != "" {
			out = append(out, feed.Problem{Severity: feed.Warning, Text: k.warning})
		}
	}
	return out
}
