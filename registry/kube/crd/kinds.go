package crd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	missed  bool               // the latest lookup did not find it
	known   bool               // its objects were listed, or no known version was served
	err     error              // why it cannot be read now

	hasProblem bool // status was sent with a problem
}

// collection is the name of the resource, "virtualservices.networking.istio.io".
func (k *kind) collection() string { return k.Plural + "." + k.Group }

// unreadable reports that the kind alone cannot be read: we may not read it, or it is no longer served
// in a known version.
func (k *kind) unreadable() bool {
	return apierrors.IsForbidden(k.err) || k.err != nil && k.version == ""
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
	for wait := firstLookup; ; wait = min(2*wait, lastLookup) {
		served, err := s.served(ctx)
		s.changes.Do(ctx, func() {
			if s.lookupErr = err; err == nil {
				s.found(ctx, served)
			}
		})
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// served returns the resources that the cluster serves, by group and version.
func (s *syncer) served(ctx context.Context) (map[schema.GroupVersion][]string, error) {
	out := map[schema.GroupVersion][]string{}
	for _, info := range config.Kinds() {
		for _, version := range info.Versions {
			gv := schema.GroupVersion{Group: info.Group, Version: version}
			if _, has := out[gv]; has {
				continue
			}
			var list metav1.APIResourceList
			// Like ServerResourcesForGroupVersion, which cannot be cancelled.
			err := s.cluster.Client.Discovery().RESTClient().Get().AbsPath("apis", gv.Group, gv.Version).Do(ctx).Into(&list)
			if err != nil && !apierrors.IsNotFound(err) {
				return nil, s.cluster.Explain(err, "read", "the API group "+gv.String())
			}
			out[gv] = []string{}
			for _, r := range list.APIResources {
				out[gv] = append(out[gv], r.Name)
			}
		}
	}
	return out, nil
}

// found watches each kind in the newest version that is served. A kind counts as not served when
// two lookups in a row did not find it: an API server that starts may not know all kinds yet.
//
// Kubernetes deletes the objects of a kind before it uninstalls the kind. Objects that are left
// may still exist, in a version that we do not know.
func (s *syncer) found(ctx context.Context, served map[schema.GroupVersion][]string) {
	for _, k := range s.kinds {
		n := slices.IndexFunc(k.Versions, func(version string) bool {
			return slices.Contains(served[schema.GroupVersion{Group: k.Group, Version: version}], k.Plural)
		})
		missedBefore, version := k.missed, ""
		if k.missed = n < 0; !k.missed {
			version = k.Versions[n]
		} else if !missedBefore {
			continue
		}
		k.known = k.known || version == ""
		if version == k.version {
			continue
		}
		if k.stop != nil {
			k.stop()
			k.stop = nil
		}
		k.version, k.err = version, nil
		if version != "" {
			s.watch(ctx, k)
		} else if s.src.has(k.Kind) {
			k.err = fmt.Errorf("cluster %s no longer serves %s in a version that ashored knows (%s): its objects stay "+
				"until ashored restarts: install CRDs that serve one of these versions",
				s.cluster.Name, k.Kind, strings.Join(k.Versions, ", "))
		}
		s.postStatus(k)
	}
}

// watch watches a kind until k.stop is called.
func (s *syncer) watch(ctx context.Context, k *kind) {
	ctx, k.stop = context.WithCancel(ctx)
	info := k.KindInfo
	at := schema.GroupVersionResource{Group: k.Group, Version: k.version, Resource: k.Plural}
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
