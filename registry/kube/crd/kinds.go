package crd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry/kube"
)

// Kinds are looked up firstLookup after the start, and less often later.
const firstLookup, lastLookup = time.Second, 30 * time.Second

// kind is what is known of one kind in the cluster. It belongs to the loop of syncer.
type kind struct {
	config.KindInfo
	version string             // the version that is watched; empty if no known one is served
	stop    context.CancelFunc // ends the watch
	missed  bool               // the latest lookup found no known version
	known   bool               // its objects were listed, or it is not installed
	err     error              // why it cannot be read now

	problem string // the text of the problem that was sent last; empty if there was none
}

// collection is the name of the resource, "virtualservices.networking.istio.io".
func (k *kind) collection() string { return k.Plural + "." + k.Group }

// unreadable reports that the kind alone cannot be read: the API server answers requests for it with
// an error, or serves no version that we know. If it does not answer, or does not accept our
// credentials, that concerns all kinds.
func (k *kind) unreadable() bool {
	if k.version == "" {
		return k.err != nil
	}
	_, answered := errors.AsType[*apierrors.StatusError](k.err)
	return answered && !apierrors.IsUnauthorized(k.err) && !apierrors.IsServiceUnavailable(k.err)
}

// status is the group with the problem of the kind. It is unreadable while the kind is, so that its
// objects stay.
func (k *kind) status(cluster string) update {
	u := update{Group: k.collection()}
	problem := func(severity feed.Severity, text string) {
		u.Problems = []feed.Problem{{Severity: severity, Object: string(k.Kind), Text: text}}
	}
	switch {
	case k.unreadable():
		u.Unreadable = true
		problem(feed.Error, k.err.Error())
	case k.version != "" && k.version != k.Versions[0]:
		problem(feed.Warning, "cluster "+cluster+" serves it only as "+k.Group+"/"+k.version+": install the CRDs of "+
			"a current Istio, which have "+k.APIVersion())
	}
	return u
}

// findKinds looks up from time to time which kinds the cluster serves.
func (s *syncer) findKinds(ctx context.Context) {
	refused := false // by the previous lookup
	for wait := firstLookup; ; wait = min(2*wait, lastLookup) {
		served, err := s.served(ctx)
		forbidden := apierrors.IsForbidden(err)
		if !forbidden || refused { // an API server that starts forbids everything until it has read its roles
			s.changes.Do(ctx, func() {
				if s.lookupErr = err; err == nil {
					s.found(ctx, served)
				}
			})
		}
		refused = forbidden
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// served returns in which versions the cluster serves the resources of our groups.
func (s *syncer) served(ctx context.Context) (map[schema.GroupResource][]string, error) {
	out := map[schema.GroupResource][]string{}
	asked := map[string]bool{}
	for _, info := range config.Kinds() {
		if asked[info.Group] {
			continue
		}
		asked[info.Group] = true
		var group metav1.APIGroup
		if err := s.lookUp(ctx, &group, info.Group); err != nil {
			return nil, err
		}
		for _, version := range group.Versions {
			var list metav1.APIResourceList
			if err := s.lookUp(ctx, &list, info.Group, version.Version); err != nil {
				return nil, err
			}
			for _, r := range list.APIResources {
				of := schema.GroupResource{Group: info.Group, Resource: r.Name}
				out[of] = append(out[of], version.Version)
			}
		}
	}
	return out, nil
}

// lookUp reads what the cluster serves below /apis. out stays empty if there is nothing. The client
// for discovery does the same, but cannot be cancelled.
func (s *syncer) lookUp(ctx context.Context, out runtime.Object, path ...string) error {
	client := s.cluster.Client.Discovery().RESTClient()
	err := client.Get().AbsPath("apis").Suffix(path...).Do(ctx).Into(out)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("cluster %s does not allow ashored to look up kinds: bind the ClusterRole system:discovery to "+
			"its account: %w", s.cluster.Name, err)
	}
	return s.cluster.Explain(err, "read", "the API group "+strings.Join(path, "/"))
}

// found watches each kind in the newest version that is served. A kind counts as not served when two
// lookups in a row did not find it: an API server that starts may not know all kinds yet.
//
// Kubernetes deletes the objects of a kind before it uninstalls the kind. Objects that are left may
// still exist, in a version that we do not know.
func (s *syncer) found(ctx context.Context, served map[schema.GroupResource][]string) {
	for _, k := range s.kinds {
		versions := served[schema.GroupResource{Group: k.Group, Resource: k.Plural}]
		n := slices.IndexFunc(k.Versions, func(v string) bool { return slices.Contains(versions, v) })
		missedBefore := k.missed
		k.missed = n < 0
		switch {
		case n >= 0:
			if k.version != k.Versions[n] {
				s.watch(ctx, k, k.Versions[n])
			}
			continue // its problem, which retains objects, ends once they are listed
		case !missedBefore:
			continue
		case len(versions) > 0 || s.src.has(k.Kind):
			k.unwatch(fmt.Errorf("cluster %s serves %s in no version that ashored knows (%s): its objects stay as they "+
				"were: install CRDs that serve one of these versions", s.cluster.Name, k.Kind, strings.Join(k.Versions, ", ")))
		default:
			k.unwatch(nil)
			k.known = true
		}
		s.postStatus(k)
	}
}

// unwatch ends the watch of a kind. err is why its objects cannot be read.
func (k *kind) unwatch(err error) {
	if k.stop != nil {
		k.stop()
	}
	k.version, k.stop, k.err = "", nil, err
}

// watch watches a version of a kind, and no other, until k.unwatch is called.
func (s *syncer) watch(ctx context.Context, k *kind, version string) {
	k.unwatch(nil)
	ctx, k.stop = context.WithCancel(ctx)
	k.version = version
	info := k.KindInfo
	at := schema.GroupVersionResource{Group: k.Group, Version: version, Resource: k.Plural}
	s.running.Go(func() {
		kube.Watch(ctx, s.cluster, kube.Resource[*unstructured.UnstructuredList]{
			Name: k.collection(), Client: s.cluster.Dynamic.Resource(at),
		}, kube.Handler[*unstructured.Unstructured, read]{
			Convert: func(u *unstructured.Unstructured) read {
				if foreign(u) {
					return read{object: &object{key: keyOf(info.Kind, u)}, absent: true}
				}
				o, up := convert(s.src.Name(), info, u)
				o.resource = at
				return read{object: o, update: up}
			},
			Replace: func(all []read, lost bool) {
				s.changes.Do(ctx, func() {
					s.listed(k, all)
					s.dataLost = s.dataLost || lost && len(s.lost) > 0
				})
			},
			Set: func(r read) { s.changes.Do(ctx, func() { s.changed(r) }) },
			Delete: func(r read) {
				r.absent = true
				s.changes.Do(ctx, func() { s.changed(r) })
			},
			Report: func(err error) { s.changes.Do(ctx, func() { s.reported(k, err) }) },
		})
	})
}
