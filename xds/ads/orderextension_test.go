package ads_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	exprv1alpha1 "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

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
	if ecds := c.order.Find(extensionType); ecds.Settled(ecds.To) {
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

// A cluster that the client knows does not make a filter wait, even while it is changed.
func TestExtensionOfKnownCluster(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.to(clusterType, "web*=2")
	c.to(extensionType, "ask=web web", "deny")
	c.wants("first", "Cluster +web")
	c.wants("then", "ClusterLoadAssignment +web")
	c.wants("at once", "TypedExtensionConfig +ask")
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
	if removed := c.settle(""); !slices.Equal(removed, []string{"judge"}) {
		t.Errorf("removed %v, want judge", removed)
	}
	if !c.order.Settled() {
		t.Error("it is not settled")
	}
}

// A cluster that a filter asks is removed after the filter, and after the time in which what was
// asked is answered.
func TestAskedClusterIsRemovedLast(t *testing.T) {
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

// A cluster that one filter asks no more, and another one does, or does again, is not waited for.
func TestAskedByAnother(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.to(extensionType, "ask=1 web", "deny")
	c.settle("")
	c.to(extensionType, "ask=2", "deny=2 web")
	c.settle("")
	if _, wait := c.order.Next(c.now); wait != 0 {
		t.Errorf("waits for %s, want nothing", wait)
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

// judging is a filter that judges by rules, as a message of requests or of connections, and leaves
// things to the filter ask.
func judging(t *testing.T, name string, f proto.Message) *resource.Resource {
	t.Helper()
	config, err := anypb.New(f)
	if err != nil {
		t.Fatal(err)
	}
	refs := []resource.Ref{{TypeURL: extensionType, Name: "ask"}}
	return resource.New(extensionType, name, refs, func() []byte {
		return resource.Encode(&corev3.TypedExtensionConfig{Name: name, TypedConfig: config})
	})
}

// rules are some of an action, "name=text"; nil for none.
func rules(action rbacv3.RBAC_Action, items ...string) *rbacv3.RBAC {
	if len(items) == 0 {
		return nil
	}
	out := &rbacv3.RBAC{Action: action, Policies: map[string]*rbacv3.Policy{}}
	for _, it := range items {
		name, text, _ := strings.Cut(it, "=")
		out.Policies[name] = &rbacv3.Policy{CheckedCondition: &exprv1alpha1.CheckedExpr{ExprVersion: text}}
	}
	return out
}

// filters makes what there is to have: a filter that asks a cluster, or nobody, and one more.
func (c *conversation) filters(cluster string, other *resource.Resource) {
	c.Helper()
	var ask []*resource.Resource
	if cluster == "" {
		ask = append(ask, judging(c.T, "ask", &httprbacv3.RBAC{}))
	} else {
		c.to(extensionType, "ask="+cluster+" "+cluster)
		ask = slices.Clone(c.order.Find(extensionType).To.Shared.Items())
	}
	c.order.Find(extensionType).To.Shared = resource.NewLayer(append(ask, other))
}

// What a filter gives up waits until the one that is to judge it has come. What it newly refuses
// holds at once, and so does everything when nothing else changes.
func TestExtensionGivesUpLast(t *testing.T) {
	t.Parallel()
	requests := func(enforced, told *rbacv3.RBAC) proto.Message {
		return &httprbacv3.RBAC{Rules: enforced, ShadowRules: told}
	}
	connections := func(enforced *rbacv3.RBAC) proto.Message { return &networkrbacv3.RBAC{Rules: enforced} }
	const allow, deny, log = rbacv3.RBAC_ALLOW, rbacv3.RBAC_DENY, rbacv3.RBAC_LOG
	tests := map[string]struct {
		had, next proto.Message
		waits     bool
	}{
		"denies less":           {requests(rules(deny, "a", "b"), nil), requests(rules(deny, "a"), nil), true},
		"denies nothing":        {requests(rules(deny, "a"), nil), requests(nil, nil), true},
		"denies more":           {requests(rules(deny, "a"), nil), requests(rules(deny, "a", "b"), nil), false},
		"begins to deny":        {requests(nil, nil), requests(rules(deny, "a"), nil), false},
		"denies another thing":  {requests(rules(deny, "a=1"), nil), requests(rules(deny, "a=2"), nil), true},
		"denies what it tried":  {requests(nil, rules(deny, "a")), requests(rules(deny, "a"), nil), false},
		"tries what it denied":  {requests(rules(deny, "a"), nil), requests(nil, rules(deny, "a")), true},
		"tells of less":         {requests(nil, rules(deny, "a")), requests(nil, nil), true},
		"tells of more":         {requests(nil, rules(deny, "a")), requests(nil, rules(deny, "a", "b")), false},
		"allows more":           {requests(rules(allow, "a"), nil), requests(rules(allow, "a", "b"), nil), true},
		"allows everything":     {requests(rules(allow, "a"), nil), requests(nil, nil), true},
		"allows less":           {requests(rules(allow, "a", "b"), nil), requests(rules(allow, "a"), nil), false},
		"begins to allow some":  {requests(nil, nil), requests(rules(allow, "a"), nil), false},
		"allows what it denied": {requests(rules(deny, "a"), nil), requests(rules(allow, "a"), nil), true},
		"logs no more":          {requests(rules(log, "a"), nil), requests(nil, nil), false},
		"connections, less":     {connections(rules(deny, "a")), connections(nil), true},
		"connections, more":     {connections(nil), connections(rules(deny, "a")), false},
		"is another thing":      {requests(rules(deny, "a"), nil), &httpauthzv3.ExtAuthz{}, true},
		"becomes another thing": {requests(nil, nil), &httpauthzv3.ExtAuthz{}, false},
		"was another thing":     {&httpauthzv3.ExtAuthz{}, requests(rules(deny, "a"), nil), true},
		"stays something else":  {&httpauthzv3.ExtAuthz{}, &httpauthzv3.ExtAuthz{FailureModeAllow: true}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := asked(t)
			c.filters("", judging(t, "deny", tt.had))
			c.settle("")

			c.filters("web", judging(t, "deny", tt.next))
			first, then := "TypedExtensionConfig +ask +deny", ""
			if tt.waits {
				first, then = "TypedExtensionConfig +ask", "TypedExtensionConfig +deny"
			}
			r := c.wants("with one that begins to ask", first)
			c.wants("before that is acknowledged", "")
			c.hear(extensionType, r.Nonce, "")
			if r = c.wants("when it is acknowledged", then); r != nil {
				c.hear(extensionType, r.Nonce, "")
			}
			c.filters("web", judging(t, "deny", tt.had))
			c.wants("alone", "TypedExtensionConfig +deny")
		})
	}
}

// What is given up waits while the one that asks waits for its cluster, and no longer when that one
// is refused.
func TestExtensionGivesUpAfterAll(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.filters("", judging(t, "deny", &httprbacv3.RBAC{Rules: rules(rbacv3.RBAC_DENY, "a")}))
	c.settle("")
	c.to(clusterType, "web*", "judge*")
	c.filters("judge", judging(t, "deny", &httprbacv3.RBAC{}))
	c.wants("first", "Cluster +judge")
	c.wants("while the cluster is on its way", "")
	c.now = c.now.Add(routeWait)
	ask := c.wants("in the end", "TypedExtensionConfig +ask")
	c.hear(extensionType, ask.Nonce, "it is bad")
	c.wants("it is refused", "TypedExtensionConfig +deny")
}

// Who begins to ask and who gives up may be each other's: nobody waits for ever.
func TestExtensionsChangePlaces(t *testing.T) {
	t.Parallel()
	c := asked(t)
	c.filters("web", judging(t, "deny", &httprbacv3.RBAC{Rules: rules(rbacv3.RBAC_DENY, "a")}))
	c.settle("")
	c.filters("", judging(t, "deny", &httprbacv3.RBAC{Rules: rules(rbacv3.RBAC_DENY, "b")}))
	c.wants("both give something up", "TypedExtensionConfig +ask +deny")
}
