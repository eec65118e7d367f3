package identity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	// unread is why they cannot be read, and lost why some of them may no longer exist. Both are nil if
	// all is well.
	unread, lost error // guarded by mu
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
	return maps.Clone(s.have), cmp.Or(s.unread, s.lost)
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
	if s.have[n] == v {
		return false
	}
	if s.have[n] = v; v == (secret.Secret{}) {
		delete(s.have, n)
	}
	return true
}

// replace takes a list. An API server that lost its data lists nothing: all stay then.
func (s *Secrets) replace(list []gatewaySecret, lost bool) {
	s.change(func() bool {
		before := s.have
		s.have = map[secret.Name]secret.Secret{}
		for _, x := range list {
			s.put(x.name, x.content)
		}
		if s.lost = nil; (lost || len(s.have) == 0) && len(before) > 0 {
			maps.Copy(before, s.have)
			s.have = before
			s.lost = fmt.Errorf("cluster %s has lost Secrets: restore them, or restart ashored if that is intended",
				s.cluster.Name)
		}
		return true
	})
}

// report notes whether Secrets can be read.
func (s *Secrets) report(err error) {
	s.change(func() bool {
		changed := fmt.Sprint(s.unread) != fmt.Sprint(err)
		s.unread = err
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
