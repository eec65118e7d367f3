package identity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/registry/kube"
)

// otherSecrets selects what may be for gateways. Source: Istio, SecretsFieldSelector.
const otherSecrets = "type!=helm.sh/release.v1,type!=" + string(corev1.SecretTypeServiceAccountToken)

// Secrets reads the Secrets of a cluster that gateways may use. It implements secret.Source. Safe for
// concurrent use.
type Secrets struct {
	cluster  *kube.Cluster // immutable
	watchers task.Broadcaster

	mu   sync.Mutex
	have map[secret.Name]secret.Secret // guarded by mu
	// lost are those of have that the API server has lost.
	lost map[secret.Name]bool // guarded by mu
	err  error                // guarded by mu: why they cannot be read now
}

// gatewaySecret is what a Secret has for gateways. content is zero if that is nothing.
type gatewaySecret struct {
	name    secret.Name
	content secret.Secret
}

// NewSecrets returns the Secrets of a cluster. Call its Run.
func NewSecrets(c *kube.Cluster) *Secrets {
	return &Secrets{cluster: c, have: map[secret.Name]secret.Secret{}}
}

// Watch reports, until ctx ends, that Read returns something else.
func (s *Secrets) Watch(ctx context.Context) <-chan struct{} { return s.watchers.Watch(ctx) }

// Read returns what was read last, and why it cannot be read now.
func (s *Secrets) Read() (map[secret.Name]secret.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.err
	var lost []string
	for n := range s.lost {
		lost = append(lost, n.String())
	}
	if err == nil && len(lost) > 0 {
		err = fmt.Errorf("cluster %s has lost Secrets, such as %s: create them again, or restart ashored if that is intended",
			s.cluster.Name, slices.Min(lost))
	}
	return maps.Clone(s.have), err
}

// Run watches the Secrets until ctx ends.
func (s *Secrets) Run(ctx context.Context) error {
	kube.Watch(ctx, s.cluster, kube.Resource[*corev1.SecretList]{Name: "secrets",
		Client: s.cluster.Client.CoreV1().Secrets(metav1.NamespaceAll), Fields: otherSecrets},
		kube.Handler[*corev1.Secret, gatewaySecret]{Convert: convert, Replace: s.replace, Report: s.report,
			Set:    func(x gatewaySecret) { s.change(func() bool { return s.put(x.name, x.content) }) },
			Delete: func(x gatewaySecret) { s.change(func() bool { return s.put(x.name, secret.Secret{}) }) },
		})
	return nil
}

// change changes what was read. f returns whether Read returns something else: most Secrets of a
// cluster are not for gateways.
func (s *Secrets) change(f func() bool) {
	s.mu.Lock()
	changed := f()
	s.mu.Unlock()
	if changed {
		s.watchers.Notify()
	}
}

// put adds or replaces what is for gateways; zero: nothing is. It returns whether that is new. The
// caller holds mu.
func (s *Secrets) put(n secret.Name, v secret.Secret) bool {
	if s.have[n] == v && !s.lost[n] {
		return false
	}
	delete(s.lost, n)
	if s.have[n] = v; v == (secret.Secret{}) {
		delete(s.have, n)
	}
	return true
}

// replace takes a list. An API server that has lost its data lists too few: all stay then.
func (s *Secrets) replace(list []gatewaySecret, lost bool) {
	s.change(func() bool {
		before, lostBefore := s.have, s.lost
		s.have, s.lost = map[secret.Name]secret.Secret{}, map[secret.Name]bool{}
		for _, x := range list {
			s.put(x.name, x.content)
		}
		lost = lost || len(s.have) == 0
		for n, v := range before {
			if _, listed := s.have[n]; !listed && (lost || lostBefore[n]) {
				s.have[n], s.lost[n] = v, true
			}
		}
		return true
	})
}

// report notes whether Secrets can be read.
func (s *Secrets) report(err error) {
	s.change(func() bool {
		changed := fmt.Sprint(s.err) != fmt.Sprint(err)
		s.err = err
		return changed
	})
}

// convert returns what a Secret has for gateways. Half of a pair counts as nothing: many Secrets that
// are not for gateways have a "key". Source: Istio, package credentials/kube.
func convert(o *corev1.Secret) gatewaySecret {
	text := func(k string) string { return string(o.Data[k]) }
	var out secret.Secret
	for _, pair := range [][2]string{{"tls.crt", "tls.key"}, {"cert", "key"}} { // the latter has precedence
		if certificate, key := text(pair[0]), text(pair[1]); certificate != "" && key != "" {
			out.Certificate, out.Key = certificate, key
		}
	}
	if out.Authorities = cmp.Or(text("cacert"), text("ca.crt")); out.Authorities != "" {
		out.Revoked = cmp.Or(text("crl"), text("ca.crl"))
	}
	return gatewaySecret{secret.Name{Namespace: o.Namespace, Name: o.Name}, out}
}
