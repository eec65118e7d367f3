package push

import (
	"slices"
	"strings"
	"time"

	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/jwks"
	"github.com/ashore-mesh/ashore/internal/pmap"
)

// Trust are the trusted roots and the revocations. Immutable: the pointer is the version. It comes
// from the certificate authority, not from configuration.
type Trust struct {
	// ID names the set of roots.
	ID string
	// Roots are the trusted authorities, each a certificate in PEM.
	Roots []string
	// Identities are the revoked SPIFFE IDs, sorted.
	Identities []string
	// Certificates are revoked leaves: the SHA-256 of each in DER as lower-case hexadecimal digits,
	// sorted.
	Certificates []string
	// Epoch grows with each revocation, and with nothing else.
	Epoch uint64
	// Connections bounds how long clients with a certificate use one connection for requests.
	Connections ConnectionBounds
}

// ConnectionBounds limits the lifetime of HTTP connections, because Envoy checks a certificate only
// when a connection begins. So an expired certificate is of no use for long.
type ConnectionBounds struct {
	// Age is after how long a connection accepts no further requests; zero: never. A request in
	// progress is not ended.
	Age time.Duration
	// Idle is how long a connection may have no request; zero: Envoy's default, 1h.
	Idle time.Duration
}

// policies is the index of the objects of one kind that select workloads, by namespace.
type policies struct {
	byKey pmap.Map[config.Key, *config.Object]
}

// matching lists the policies of namespace and of the root namespace that select a workload with
// these labels, the older first. One without a selector selects every workload.
// Source: istio.io, workload selectors of security policies.
func (x policies) matching(
	kind config.Kind, namespace, root string, selects func(want map[string]string) bool,
) []*config.Object {
	if x.byKey.Len() == 0 {
		return nil
	}
	var out []*config.Object
	take := func(namespace string) {
		for k, o := range x.byKey.From(config.Key{Kind: kind, Namespace: namespace}) {
			if k.Namespace != namespace {
				return
			}
			if selects(SelectorLabels(o)) {
				out = append(out, o)
			}
		}
	}
	take(namespace)
	if root != namespace {
		take(root)
	}
	slices.SortFunc(out, CompareAge)
	return out
}

// SelectorLabels returns the labels that a security policy selects by. An empty map selects all
// workloads.
func SelectorLabels(o *config.Object) map[string]string {
	s, ok := o.Spec.(interface {
		GetSelector() *typev1beta1.WorkloadSelector
	})
	if !ok {
		return nil
	}
	return s.GetSelector().GetMatchLabels()
}

// policiesFor lists the policies of one kind for a proxy. Equal lists are one pointer.
func (c *Context) policiesFor(x policies, kind config.Kind, n Node) *intern.List[*config.Object] {
	root := c.in.Mesh.Config.GetRootNamespace()
	matches := func(want map[string]string) bool { return selects(want, n.Labels) }
	return c.tables.objects.Of(x.matching(kind, n.Namespace, root, matches))
}

// PeerPolicies are all PeerAuthentications. Clients need them to know how servers accept
// connections. Its pointer is kept while none of them changes; nil: there are none.
type PeerPolicies struct {
	policies policies
	root     string
	disables bool // the mode of some policy is DISABLE
}

func newPeerPolicies(p PeerPolicies) *PeerPolicies {
	p.disables = p.policies.disables()
	return &p
}

// Of lists the policies that match a workload, the older first.
func (p *PeerPolicies) Of(namespace string, labels map[string]string) []*config.Object {
	if p == nil {
		return nil
	}
	matches := func(want map[string]string) bool { return SelectsAll(want, labels) }
	return p.policies.matching(config.PeerAuthentication, namespace, p.root, matches)
}

// peerPolicies is the index for clients.
func (c *Context) peerPolicies() *PeerPolicies {
	if c.peers.byKey.Len() == 0 {
		return nil
	}
	return c.tables.peerPolicies.Get(PeerPolicies{policies: c.peers, root: c.in.Mesh.Config.GetRootNamespace()})
}

// KeySets are the public keys of token issuers, by URL. Immutable: the pointer is the version.
type KeySets struct {
	// ByURL holds the last JWKS document of each URL.
	ByURL map[string]string
}

// Get is the document of a URL, and whether there is one.
func (k *KeySets) Get(url string) (string, bool) {
	if k == nil {
		return "", false
	}
	s, ok := k.ByURL[url]
	return s, ok
}

// KeyURL is where the keys of a rule are fetched: its jwksUri, else the issuer's OpenID
// configuration, which names the URL of its keys. Empty: the rule contains them.
func KeyURL(r *security.JWTRule) string {
	switch {
	case r.GetJwks() != "":
		return ""
	case r.GetJwksUri() != "":
		return r.GetJwksUri()
	}
	return strings.TrimSuffix(r.GetIssuer(), "/") + jwks.DiscoveryPath
}
