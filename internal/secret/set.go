package secret

import (
	"maps"
	"slices"
	"strings"
)

const (
	// ResourcePrefix begins the names of the resources that proxies ask for: "kubernetes://web".
	// Source: Istio, credentials.KubernetesSecretTypeURI.
	ResourcePrefix = "kubernetes://"
	// AuthoritiesSuffix ends the names of authorities: "kubernetes://web-cacert". Source: Istio,
	// credentials.SdsCaSuffix.
	AuthoritiesSuffix = "-cacert"
)

// CertificateResource is the name of the resource of a certificate that a credentialName names.
func CertificateResource(credential string) string {
	return ResourcePrefix + strings.TrimPrefix(credential, ResourcePrefix)
}

// AuthoritiesResource is the name of the resource of the authorities that a credentialName or
// caCertCredentialName names.
func AuthoritiesResource(credential string) string {
	return strings.TrimSuffix(CertificateResource(credential), AuthoritiesSuffix) + AuthoritiesSuffix
}

// Namespace holds the secrets of one namespace. Immutable; nil has none.
type Namespace struct{ byName map[string]Secret }

// Resource returns what a resource of that name has: a certificate with its key, or authorities,
// which are those of a secret NAME-cacert, or else of NAME. It returns false if there is none.
// Source: Istio, CredentialsController.GetCaCert.
func (n *Namespace) Resource(resource string) (Secret, bool) {
	name, ok := strings.CutPrefix(resource, ResourcePrefix)
	if n == nil || !ok {
		return Secret{}, false
	}
	stripped, authorities := strings.CutSuffix(name, AuthoritiesSuffix)
	if !authorities {
		s := n.byName[name]
		return Secret{Certificate: s.Certificate, Key: s.Key}, s.Certificate != ""
	}
	s, ok := n.byName[name]
	if !ok {
		s = n.byName[stripped]
	}
	return Secret{Authorities: s.Authorities, Revoked: s.Revoked}, s.Authorities != ""
}

// Set holds all secrets. Immutable; nil has none.
type Set struct{ namespaces map[view]*Namespace }

// view is a part of a set: all secrets of a namespace, or those that are not restricted.
type view struct {
	namespace string
	all       bool
}

// NewSet returns a set. Only proxies with a right to them may have restricted secrets; nil: none is
// restricted. What is equal in prev, which may be nil, keeps its pointer.
func NewSet(prev *Set, all map[Name]Secret, restricted func(Name) bool) *Set {
	secrets := map[view]map[string]Secret{}
	add := func(to view, n Name, s Secret) {
		if secrets[to] == nil {
			secrets[to] = map[string]Secret{}
		}
		secrets[to][n.Name] = s
	}
	for n, s := range all {
		add(view{n.Namespace, true}, n, s)
		if restricted == nil || !restricted(n) {
			add(view{n.Namespace, false}, n, s)
		}
	}
	next := &Set{namespaces: map[view]*Namespace{}}
	for p, secrets := range secrets {
		old := prev.Namespace(p.namespace, p.all)
		if old == nil || !maps.Equal(old.byName, secrets) {
			old = &Namespace{secrets}
		}
		next.namespaces[p] = old
	}
	if prev != nil && maps.Equal(prev.namespaces, next.namespaces) {
		return prev
	}
	return next
}

// Namespace returns the secrets of a namespace, with all also the restricted ones; nil if there are
// none.
func (s *Set) Namespace(name string, all bool) *Namespace {
	if s == nil {
		return nil
	}
	return s.namespaces[view{name, all}]
}

// Having returns the namespaces that have a resource of that name, sorted.
func (s *Set) Having(resource string) []string {
	var out []string
	if s == nil {
		return nil
	}
	for p, n := range s.namespaces {
		if _, ok := n.Resource(resource); ok && p.all {
			out = append(out, p.namespace)
		}
	}
	slices.Sort(out)
	return out
}
