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

// secretKeys are the keys of a Secret that are used: those of Istio, and those of Kubernetes.
// Source: Istio, package credentials/kube.
func secretKeys() []string {
	return []string{"cert", "key", "cacert", "crl", "tls.crt", "tls.key", "ca.crt", "ca.crl"}
}

// Secrets reads the Secrets of a cluster that gateways may use. It implements secret.Source. Safe for
// concurrent use.
type Secrets struct {
	cluster  *kube.Cluster // immutable
	watchers task.Broadcaster

	mu   sync.Mutex
	have map[secret.Name]secret.Secret // guarded by mu
	// unread is why they cannot be read, and lost why those that were read are in doubt. Both are nil
	// if all is well.
	unread, lost error // guarded by mu
	version      int   // guarded by mu: changes when what Read returns does
}

// NewSecrets makes one. Run reads.
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
		kube.Handler[*corev1.Secret]{Strip: strip, Replace: s.replace, Report: s.report,
			Set:    func(o *corev1.Secret) { s.change(func() { s.set(o) }) },
			Delete: func(o *corev1.Secret) { s.change(func() { s.put(nameOf(o), secret.Secret{}) }) },
		})
	return nil
}

// strip leaves the name and the keys that are used. Annotations may have copies of keys.
func strip(o *corev1.Secret) {
	data := map[string][]byte{}
	for _, k := range secretKeys() {
		if v := o.Data[k]; len(v) > 0 {
			data[k] = v
		}
	}
	*o = corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name,
		ResourceVersion: o.ResourceVersion}, Data: data}
}

func nameOf(o *corev1.Secret) secret.Name { return secret.Name{Namespace: o.Namespace, Name: o.Name} }

// change changes what was read, and reports it if Read returns something else. Most Secrets of a
// cluster are not for gateways.
func (s *Secrets) change(f func()) {
	s.mu.Lock()
	before := s.version
	f()
	changed := s.version != before
	s.mu.Unlock()
	if changed {
		s.watchers.Notify()
	}
}

// set adds or replaces a Secret. The caller holds mu.
func (s *Secrets) set(o *corev1.Secret) { s.put(nameOf(o), convert(o.Data)) }

// put adds or replaces what is for gateways; zero: nothing is. The caller holds mu.
func (s *Secrets) put(n secret.Name, v secret.Secret) {
	if s.have[n] == v {
		return
	}
	s.version++
	if s.have[n] = v; v == (secret.Secret{}) {
		delete(s.have, n)
	}
}

// replace takes a list. An API server that lost its data lists nothing: all stay then.
func (s *Secrets) replace(list []*corev1.Secret) {
	s.change(func() {
		s.version++
		before := s.have
		s.have = map[secret.Name]secret.Secret{}
		for _, o := range list {
			s.set(o)
		}
		if s.lost = nil; len(s.have) == 0 && len(before) > 0 {
			s.have = before
			s.lost = fmt.Errorf("cluster %s has no Secret with a certificate any more: restart ashored if that is intended",
				s.cluster.Name)
		}
	})
}

// report notes whether Secrets can be read.
func (s *Secrets) report(err error) {
	s.change(func() {
		if fmt.Sprint(s.unread) != fmt.Sprint(err) {
			s.unread = err
			s.version++
		}
	})
}

// convert returns what a Secret has for gateways; zero: nothing. Half of a pair counts as nothing:
// many Secrets that are not for gateways have a "key".
func convert(data map[string][]byte) secret.Secret {
	text := func(k string) string { return string(data[k]) }
	var out secret.Secret
	for _, pair := range [][2]string{{"tls.crt", "tls.key"}, {"cert", "key"}} { // the latter has precedence
		if certificate, key := text(pair[0]), text(pair[1]); certificate != "" && key != "" {
			out.Certificate, out.Key = certificate, key
		}
	}
	if out.Authorities = cmp.Or(text("cacert"), text("ca.crt")); out.Authorities != "" {
		out.Revoked = cmp.Or(text("crl"), text("ca.crl"))
	}
	return out
}
