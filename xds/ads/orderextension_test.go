package ads_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

const extensionType = resource.ExtensionConfigType

// asked is a conversation whose client has a cluster, and filters of which none asks anybody.
func asked(t *testing.T) *conversation {
	t.Helper()
	c := newConversation(t, clusterType, endpointType, extensionType)
	c.to(clusterType, "web*")
	c.to(endpointType, "web")
	c.to(extensionType, "ask", "deny")
	c.hear(clusterType, "", "")
	c.hear(endpointType, "", "", "web")
	c.hear(extensionType, "", "", "ask", "deny")
	c.settle("")
	return c
}

// A filter that newly asks a cluster is sent when the cluster's endpoints are acknowledged, and the
// filters beside it at once. The cluster is acknowledged later, as Envoy does it.
func TestExtensionWaitsForItsCluster(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.to(clusterType, "web*", "judge*")
	c.to(endpointType, "web", "judge")
	c.to(extensionType, "ask=judge judge", "deny=a")
	c.wants("first", "Cluster +judge")
	deny := c.wants("a policy that asks nobody", "TypedExtensionConfig +deny")
	c.hear(extensionType, deny.Nonce, "")
	c.wants("before the client asked for endpoints", "")
	if ecds := c.order.Find(extensionType); ecds.Settled() {
		t.Error("settled before the filter was sent")
	}
	c.hear(endpointType, "", "", "judge")
	eds := c.wants("the client asked for endpoints", "ClusterLoadAssignment +judge")
	c.wants("before the endpoints are acknowledged", "")
	c.hear(endpointType, eds.Nonce, "")
	ask := c.wants("the endpoints are acknowledged", "TypedExtensionConfig +ask")
	c.hear(extensionType, ask.Nonce, "")
	c.wants("at last", "")
}

// A filter waits also for the endpoints of a cluster that is changed.
func TestExtensionOfChangedCluster(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.to(clusterType, "web*=2")
	c.to(extensionType, "ask=web web", "deny")
	c.wants("first", "Cluster +web")
	eds := c.wants("then", "ClusterLoadAssignment +web")
	c.wants("before the endpoints are acknowledged", "")
	c.hear(endpointType, eds.Nonce, "")
	c.wants("at last", "TypedExtensionConfig +ask")
}

// A filter waits for its cluster for a time, whatever becomes of it meanwhile; then it is sent, and
// refuses.
func TestExtensionWaitsNoLonger(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.to(clusterType, "web*", "judge*")
	c.to(extensionType, "ask=1 judge", "deny")
	c.wants("first", "Cluster +judge")
	if r, wait := c.order.Next(c.now); r != nil || wait != routeWait {
		t.Fatalf("sent %v and waits for %s, want %s", r, wait, routeWait)
	}
	c.now = c.now.Add(routeWait / 2)
	c.to(extensionType, "ask=2 judge", "deny")
	c.wants("changed meanwhile", "")
	c.now = c.now.Add(routeWait / 2)
	c.wants("in the end", "TypedExtensionConfig +ask")
}

// A filter does not wait for a cluster that the client refuses.
func TestExtensionOfRefusedCluster(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.to(clusterType, "web*", "judge*")
	c.to(extensionType, "ask=judge judge", "deny")
	cds := c.wants("first", "Cluster +judge")
	c.wants("before the answer", "")
	c.hear(clusterType, cds.Nonce, "judge is bad")
	c.wants("the cluster is refused", "TypedExtensionConfig +ask")
}

// What a filter waits for can be taken back: the filter is what it was.
func TestExtensionTakenBack(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.to(clusterType, "web*", "judge*")
	c.to(extensionType, "ask=judge judge", "deny")
	c.wants("first", "Cluster +judge")
	c.wants("the filter waits", "")
	c.to(clusterType, "web*")
	c.to(extensionType, "ask", "deny")
	c.settle("")
	c.now = c.now.Add(removalWait)
	if removed := c.settle(""); !slices.Equal(removed, []string{"judge"}) {
		t.Errorf("removed %v, want judge", removed)
	}
	if !c.order.Settled() {
		t.Error("it is not settled")
	}
}

// A cluster is removed after the filter that asks it, and after the time in which what was asked is
// answered.
func TestClusterIsRemovedLast(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.to(clusterType, "web*", "judge*")
	c.to(endpointType, "web", "judge")
	c.to(extensionType, "ask=judge judge", "deny")
	c.hear(endpointType, "", "", "judge")
	c.settle("")

	c.to(clusterType, "web*")
	c.to(endpointType, "web")
	c.to(extensionType, "ask", "deny")
	ask := c.wants("first", "TypedExtensionConfig +ask")
	c.wants("before the filter is acknowledged", "")
	c.now = c.now.Add(removalWait / 2)
	c.hear(extensionType, ask.Nonce, "")
	if r, wait := c.order.Next(c.now); r != nil || wait != removalWait/2 {
		t.Fatalf("sent %v and waits for %s, want %s", r, wait, removalWait/2)
	}
	c.now = c.now.Add(removalWait / 2)
	c.wants("in the end", "Cluster -judge")
	if r, wait := c.order.Next(c.now); r != nil || wait != 0 {
		t.Errorf("sent %v and waits for %s afterwards, want nothing", r, wait)
	}
}

// The cluster of a filter whose next version is refused stays as long as that is refused.
func TestClusterOfRefusedExtension(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.to(extensionType, "ask=1 web", "deny")
	c.settle("")
	c.to(clusterType)
	c.to(extensionType, "ask=2", "deny")
	if removed := c.settle("ask"); len(removed) > 0 {
		t.Fatalf("removed %v, and the client still asks it", removed)
	}
	c.now = c.now.Add(time.Hour)
	if removed := c.settle("ask"); len(removed) > 0 {
		t.Fatalf("after an hour: removed %v, and the client still asks it", removed)
	}
	c.to(extensionType, "ask=3", "deny")
	if removed := c.settle(""); !slices.Equal(removed, []string{"web"}) {
		t.Errorf("removed %v when the filter moved on, want web", removed)
	}
}

// A filter that leaves requests to one that waits for its cluster waits with it; then both are sent
// in one response.
func TestExtensionWaitsForAnother(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.to(clusterType, "web*", "judge*")
	c.to(extensionType, "ask=judge judge", "deny=2 >ask")
	c.wants("first", "Cluster +judge")
	c.wants("while the cluster is pending", "")
	c.now = c.now.Add(routeWait)
	c.wants("in the end", "TypedExtensionConfig +ask +deny")
}

// A filter does not wait for another one that has nothing to wait for.
func TestExtensionDoesNotWait(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.to(clusterType, "web*", "judge*")
	c.to(extensionType, "ask=1 web", "deny=2 >ask")
	c.wants("first", "Cluster +judge")
	c.wants("at once", "TypedExtensionConfig +ask +deny")
}

// The first response of a type is not an empty one before what waits for its cluster.
func TestFirstResponseIsNotEmpty(t *testing.T) {
	t.Parallel()
	c := newConversation(t, clusterType, endpointType, extensionType)
	c.to(clusterType, "judge*")
	c.to(extensionType, "ask=judge judge")
	c.hear(clusterType, "", "")
	cds := c.wants("first", "Cluster +judge")
	c.hear(extensionType, "", "", "ask")
	c.wants("while the cluster is pending", "")
	c.hear(clusterType, cds.Nonce, "")
	c.wants("the cluster is acknowledged", "TypedExtensionConfig +ask")
}

// A filter that permits more is sent when those that refuse more are acknowledged, also when one of
// these waits for its cluster.
func TestPermitsMoreLast(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.to(extensionType, "ask", "deny=1 !a,b")
	c.settle("")
	c.to(clusterType, "web*", "judge*")
	c.to(extensionType, "ask=judge judge !j", "deny=2 !b")
	cds := c.wants("first", "Cluster +judge")
	c.wants("while the cluster is pending", "")
	c.hear(clusterType, cds.Nonce, "")
	ask := c.wants("what refuses more", "TypedExtensionConfig +ask")
	c.wants("before it is acknowledged", "")
	c.hear(extensionType, ask.Nonce, "")
	c.wants("what permits more", "TypedExtensionConfig +deny")
}

// While a filter that refuses more is rejected, no other one permits more. Those that do not wait
// for it are sent.
func TestRejectedFilterKeepsOthers(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.to(extensionType, "ask", "deny=1 !a")
	c.settle("")
	c.to(extensionType, "ask=x !j", "deny=2")
	ask := c.wants("what refuses more", "TypedExtensionConfig +ask")
	c.hear(extensionType, ask.Nonce, "ask is bad")
	c.wants("after the rejection", "")
	c.to(extensionType, "ask=x !j", "deny=3 !a,b")
	c.wants("it refuses more", "TypedExtensionConfig +deny")
}

// Filters of which each permits more than before do not wait for one another.
func TestBothPermitMore(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.to(extensionType, "ask=1 !a", "deny=1 !b")
	c.settle("")
	c.to(extensionType, "ask=2", "deny=2")
	c.wants("at once", "TypedExtensionConfig +ask +deny")
}
