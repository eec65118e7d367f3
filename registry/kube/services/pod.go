package services

import (
	"cmp"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/internal/peername"
	"github.com/ashore-mesh/ashore/registry"
)

// Labels of Nodes and Pods. Source: Kubernetes, "Well-Known Labels"; istio.io, "Resource Labels".
const (
	regionLabel   = "topology.kubernetes.io/region"
	zoneLabel     = "topology.kubernetes.io/zone"
	subZoneLabel  = "topology.istio.io/subzone"
	localityLabel = "istio-locality"
	tlsModeLabel  = "security.istio.io/tlsMode"
)

// pod is what is used of a Pod. Immutable once it was set.
type pod struct {
	key       key
	endpoint  registry.Endpoint
	addresses []string // in canonical form
	node      string
}

func (p *pod) equal(q *pod) bool {
	return p == q || p != nil && q != nil && p.endpoint.Equal(&q.endpoint) && p.node == q.node &&
		slices.Equal(p.addresses, q.addresses)
}

// newPod returns a Pod that is not placed yet.
func newPod(p *corev1.Pod, cluster string) *pod {
	ep := registry.Endpoint{
		Ports:          portsOf(p),
		Labels:         labels(p.Labels, cluster),
		ServiceAccount: cmp.Or(p.Spec.ServiceAccountName, "default"),
		Namespace:      p.Namespace,
		Workload:       workloadOf(p),
		Health:         registry.Unhealthy,
	}
	addresses := addressesOf(p)
	if len(addresses) > 0 {
		ep.Address = addresses[0]
	}
	if p.Labels[tlsModeLabel] == registry.TLSModeIstio {
		ep.TLSMode = registry.TLSModeIstio
	}
	ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if ready && p.DeletionTimestamp == nil {
		ep.Health = registry.Healthy
	}
	return &pod{key: key{Namespace: p.Namespace, Name: p.Name}, endpoint: ep, addresses: addresses, node: p.Spec.NodeName}
}

// labels returns the labels of an endpoint. As in Istio, subsets can select a cluster.
func labels(of map[string]string, cluster string) map[string]string {
	out := make(map[string]string, len(of)+1)
	maps.Copy(out, of)
	out[registry.ClusterLabel] = cluster
	return out
}

// place sets where an endpoint is: its locality and its network.
func (o *objects) place(ep *registry.Endpoint, node string) {
	if label := ep.Labels[localityLabel]; label != "" {
		if !strings.Contains(label, "/") {
			label = strings.ReplaceAll(label, ".", "/") // a label cannot have a slash
		}
		ep.Locality = registry.ParseLocality(label)
	} else {
		ep.Locality = o.nodes[node]
	}
	ep.Network = cmp.Or(ep.Labels[registry.NetworkLabel], o.network())
}

// network returns the network of Pods that have no other.
func (o *objects) network() string {
	return cmp.Or(o.namespaces[o.options.Namespace].network, o.options.Network)
}

// addressesOf returns the addresses of a Pod. The first one is status.podIP.
func addressesOf(p *corev1.Pod) (out []string) {
	for _, ip := range append([]corev1.PodIP{{IP: p.Status.PodIP}}, p.Status.PodIPs...) {
		if a, ok := canonical(ip.IP); ok && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// canonical returns an IP address in its canonical form.
func canonical(text string) (string, bool) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return "", false
	}
	return a.Unmap().String(), true
}

// portsOf returns the numbers of the named TCP ports of a Pod's containers. Of two ports with one
// name it returns the first. Nil if there are none. Source: Istio, getPortMap.
func portsOf(p *corev1.Pod) (out map[string]uint32) {
	sidecars := slices.DeleteFunc(slices.Clone(p.Spec.InitContainers), func(c corev1.Container) bool {
		return deref(c.RestartPolicy) != corev1.ContainerRestartPolicyAlways
	})
	for _, c := range slices.Concat(p.Spec.Containers, sidecars) {
		for _, port := range c.Ports {
			n, ok := portNumber(port.ContainerPort)
			if _, taken := out[port.Name]; !ok || taken || port.Name == "" || !isTCP(port.Protocol) {
				continue
			}
			if out == nil {
				out = map[string]uint32{}
			}
			out[port.Name] = n
		}
	}
	return out
}

// isTCP reports whether a protocol is TCP, which is the default.
func isTCP(p corev1.Protocol) bool { return p == corev1.ProtocolTCP || p == "" }

func portNumber(n int32) (uint32, bool) { return uint32(n), n > 0 && n <= 65535 }

// cronJob matches the name of a Job of a CronJob. Source: Istio, GetDeployMetaFromPod.
var cronJob = regexp.MustCompile(`^(.+)-\d{8,10}$`)

// workloadOf returns the name of the workload to which a Pod belongs, such as that of a Deployment.
// Source: Istio, GetWorkloadMetaFromPod.
func workloadOf(p *corev1.Pod) string {
	if name := p.Labels[peername.WorkloadLabel]; name != "" {
		return name
	}
	i := slices.IndexFunc(p.OwnerReferences, func(r metav1.OwnerReference) bool {
		return deref(r.Controller)
	})
	if p.GenerateName == "" || i < 0 {
		return p.Name
	}
	owner := p.OwnerReferences[i]
	switch owner.Kind {
	case "ReplicaSet":
		for _, label := range []string{"pod-template-hash", "rollouts-pod-template-hash"} {
			if hash := p.Labels[label]; hash != "" && strings.HasSuffix(owner.Name, hash) {
				return strings.TrimSuffix(owner.Name, "-"+hash)
			}
		}
	case "Job":
		if m := cronJob.FindStringSubmatch(owner.Name); m != nil {
			return m[1]
		}
	}
	return owner.Name
}

// deref returns *p, or the zero value for nil.
func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
