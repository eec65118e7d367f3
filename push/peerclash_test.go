package push

import (
	"testing"
	"time"

	mesh "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
)

// Of several policies of one level for the same workloads the oldest counts, and the others are told of; so are those
// of the root namespace that name workloads.
func TestPeerClashes(t *testing.T) {
	t.Parallel()
	in := Inputs{Mesh: &Mesh{Config: &mesh.MeshConfig{RootNamespace: "root"}, Domain: "cluster.local"}}
	put := func(age int, namespace, name string, labels map[string]string) {
		o := &config.Object{Key: config.Key{Kind: config.PeerAuthentication, Namespace: namespace, Name: name}, Created: time.Unix(int64(age), 0), Hash: uint64(age)}
		p := &security.PeerAuthentication{}
		if labels != nil {
			p.Selector = &typev1beta1.WorkloadSelector{MatchLabels: labels}
		}
		o.Spec = p
		in.Objects = in.Objects.With(o.Key, o)
	}
	web, narrow := map[string]string{"app": "web"}, map[string]string{"app": "web", "version": "v1"}
	put(1, "root", "mesh", nil)
	put(2, "a", "one", nil)
	put(3, "a", "two", nil)
	put(4, "a", "web", web)
	put(5, "a", "narrow", narrow)
	put(6, "a", "other", map[string]string{"app": "db"})
	put(7, "b", "narrow", narrow)
	put(8, "b", "web", web)
	put(9, "root", "web", web)
	put(10, "root", "web2", web)
	var c crossings
	found := map[place][]finding{}
	const first = ", which is for the same workloads, comes first, by age or by name: put what both say into one object"
	root := "has no effect, because root is the root namespace, whose policies are for the whole mesh and not for some workloads: write it into the namespace of the workloads, or remove the selector"
	want := []string{
		"error PeerAuthentication a/narrow spec.selector: has no effect, because PeerAuthentication a/web ()" + first,
		"error PeerAuthentication a/two spec: has no effect, because PeerAuthentication a/one ()" + first,
		"error PeerAuthentication root/web spec.selector: " + root,
		"error PeerAuthentication root/web2 spec.selector: " + root,
	}
	if d := cmp.Diff(want, crossingsOf(&c, found, in)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for _, gone := range []config.Key{{Kind: config.PeerAuthentication, Namespace: "a", Name: "one"}, {Kind: config.PeerAuthentication, Namespace: "a", Name: "web"},
		{Kind: config.PeerAuthentication, Namespace: "root", Name: "web"}, {Kind: config.PeerAuthentication, Namespace: "root", Name: "web2"}} {
		in.Objects = in.Objects.Without(gone)
	}
	if got := crossingsOf(&c, found, in); len(got) != 0 {
		t.Errorf("what was in the way is gone, and still told of: %v", got)
	}
}
