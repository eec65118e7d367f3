package push

import (
	"slices"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/jwks"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// Trust holds the trusted roots and the revocations. Immutable: the pointer is the version. It
// comes from the certificate authority, not from configuration.
type Trust struct {
	// ID identifies the set of roots.
	ID string
	// Roots lists the trusted authorities, each a certificate in PEM.
	Roots []string
	// Identities lists the revoked SPIFFE IDs, sorted.
	Identities []string
	// Certificates lists the hex SHA-256 fingerprints of the revoked leaf certificates, in lower
	// case, sorted.
	Certificates []string
	// Connections limits the lifetime of connections of clients with a certificate.
	Connections ConnectionBounds
}

// ConnectionBounds limits the lifetime of connections. Envoy checks a certificate only when a
// connection begins, so an expired certificate would be of use for the length of the connection.
type ConnectionBounds struct {
	// Age is how long an HTTP connection accepts requests; requests in progress then continue. A raw
	// connection is closed at this age. Zero means without limit.
	Age time.Duration
	// Idle is how long an HTTP connection may have no request. Zero means Envoy's default, 1h.
	Idle time.Duration
}

// policies is the index of the objects of one kind that select workloads, by namespace.
type policies struct {
	kind  config.Kind
	byKey pmap.Map[config.Key, *config.Object]
}

// matching returns the policies of namespace and of the root namespace for whose labels selects
// returns true, sorted by CompareAge. A policy without a selector selects every workload.
// Source: istio.io, workload selectors of security policies.
func (x policies) matching(namespace, root string, selects func(want map[string]string) bool) []*config.Object {
	if x.byKey.Len() == 0 {
		return nil
	}
	var out []*config.Object
	add := func(namespace string) {
		for k, o := range x.byKey.From(config.Key{Kind: x.kind, Namespace: namespace}) {
			if k.Namespace != namespace {
				return
			}
			if selects(SelectorLabels(o)) {
				out = append(out, o)
			}
		}
	}
	add(namespace)
	if root != namespace {
		add(root)
	}
	slices.SortFunc(out, CompareAge)
	return out
}

// SelectorLabels returns the labels by which a security policy, a Telemetry, an EnvoyFilter or a
// TrafficExtension selects. An empty map selects all workloads.
func SelectorLabels(o *config.Object) map[string]string {
	if f, ok := o.Spec.(*networking.EnvoyFilter); ok {
		return f.GetWorkloadSelector().GetLabels()
	}
	s, ok := o.Spec.(interface {
		GetSelector() *typev1beta1.WorkloadSelector
	})
	if !ok {
		return nil
	}
	return s.GetSelector().GetMatchLabels()
}

// policiesFor returns the policies of one kind that select a proxy. Equal lists are one pointer.
func (c *Context) policiesFor(kind config.Kind, n Node) *intern.List[*config.Object] {
	root := c.in.Mesh.Config.GetRootNamespace()
	matches := func(want map[string]string) bool { return selects(want, n.Labels) }
	return c.tables.objects.Of(c.policies[kind].matching(n.Namespace, root, matches))
}

// PeerPolicies holds all PeerAuthentications. Clients need them to know how servers accept
// connections. The pointer changes only if one of them changes. Nil if there are none.
type PeerPolicies struct {
	policies policies
	root     string
	disables bool // the mode of some policy is DISABLE
}

func newPeerPolicies(p PeerPolicies) *PeerPolicies {
	p.disables = p.policies.disables()
	return &p
}

// Of returns the policies that select a workload, sorted by CompareAge.
func (p *PeerPolicies) Of(namespace string, labels map[string]string) []*config.Object {
	if p == nil {
		return nil
	}
	matches := func(want map[string]string) bool { return registry.SelectsAll(want, labels) }
	return p.policies.matching(namespace, p.root, matches)
}

// peerPolicies returns Scope.PeerAuthentications.
func (c *Context) peerPolicies() *PeerPolicies {
	peers := c.policies[config.PeerAuthentication]
	if peers.byKey.Len() == 0 {
		return nil
	}
	return c.tables.peerPolicies.Get(PeerPolicies{policies: peers, root: c.in.Mesh.Config.GetRootNamespace()})
}

// KeySets holds the public keys of token issuers, by URL. Immutable: the pointer is the version.
type KeySets struct {
	// ByURL holds the last JWKS document of each URL.
	ByURL map[string]string
}

// Get returns the document of a URL, and whether there is one.
func (k *KeySets) Get(url string) (string, bool) {
	if k == nil {
		return "", false
	}
	s, ok := k.ByURL[url]
	return s, ok
}

// KeyURL returns the URL from which the keys of a rule are fetched: its jwksUri, or else the OpenID
// configuration of the issuer, which names the URL of the keys. It is empty if the rule contains
// the keys, or if its issuer is no URL and nothing names the keys.
func KeyURL(r *security.JWTRule) string {
	switch {
	case r.GetJwks() != "":
		return ""
	case r.GetJwksUri() != "":
		return r.GetJwksUri()
	case !strings.Contains(r.GetIssuer(), "://"):
		return ""
	}
	return strings.TrimSuffix(r.GetIssuer(), "/") + jwks.DiscoveryPath
}
