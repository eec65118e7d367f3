package agent

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/agent/intercept"
	"github.com/ashore-mesh/ashore/internal/peername"
)

// apiVersion is the release of Istio's API that the agent speaks; node metadata ISTIO_VERSION.
// Without it a control plane has to guess what the proxy can do.
const apiVersion = "1.31.1"

// domain is part of the node's ID, where Istio has the suffix of its host names.
const domain = "cluster.local"

// Values of the node metadata ASHORE_STREAM, the purpose of a stream. Without it one stream is for
// everything, as with Istio's agent.
const (
	streamConfig  = "config"  // Envoy's: it registers no workload
	streamControl = "control" // the agent's own: it reads nothing for Envoy
)

// node returns the node of a stream of Envoy or of the agent. ID and metadata have Istio's form, so
// that both control planes read them: lists are text with commas, booleans are text.
func node(s *Settings, stream string) (*corev3.Node, error) {
	w := &s.Workload
	meta, err := structpb.NewStruct(nodeMetadata(s, stream))
	if err != nil {
		return nil, fmt.Errorf("node metadata: %w", err)
	}
	region, rest, _ := strings.Cut(w.Locality, "/")
	zone, subzone, _ := strings.Cut(rest, "/")
	n := &corev3.Node{
		Id: fmt.Sprintf("%s~%s~%s.%s~%s.svc.%s", w.Type, w.Addresses[0], w.Name, w.Namespace, w.Namespace,
			domain),
		Cluster:  serviceOf(w),
		Metadata: meta,
	}
	if w.Locality != "" {
		n.Locality = &corev3.Locality{Region: region, Zone: zone, SubZone: subzone}
	}
	return n, nil
}

// serviceOf is the workload's service in statistics and spans.
func serviceOf(w *Workload) string { return w.peerName().Service + "." + w.Namespace }

// peerName is what telemetry says of the workload. The certificate knows the labels of its
// WorkloadGroup. Without one, the settings decide.
func (w *Workload) peerName() peername.Name {
	if w.certName != (peername.Name{}) {
		return w.certName
	}
	return peername.Of(w.Labels, cmp.Or(w.Group, w.Name), "")
}

func nodeMetadata(s *Settings, stream string) map[string]any {
	w := &s.Workload
	labels := map[string]any{}
	for k, v := range w.Labels {
		labels[k] = v
	}
	name := w.peerName()
	m := map[string]any{
		"NAME":               w.Name,
		"NAMESPACE":          w.Namespace,
		"WORKLOAD_NAME":      name.Workload,
		"CANONICAL_SERVICE":  name.Service,
		"CANONICAL_REVISION": name.Revision,
		"INSTANCE_IPS":       strings.Join(w.Addresses, ","),
		"ISTIO_VERSION":      apiVersion,
		"LABELS":             labels,
		"INTERCEPTION_MODE":  strings.ToUpper(w.Interception),
		"PROXY_CONFIG":       nodeProxyConfig(s),

		"ENVOY_STATUS_PORT":     healthPort,
		"ENVOY_PROMETHEUS_PORT": metricsPort,
	}
	for name, value := range map[string]string{
		"SERVICE_ACCOUNT":     w.serviceAccount,
		"NETWORK":             w.Network,
		"CLUSTER_ID":          w.Cluster,
		"AUTO_REGISTER_GROUP": w.Group,
		"ASHORE_STREAM":       stream,
	} {
		if value != "" {
			m[name] = value
		}
	}
	if w.Interception == "tproxy" && !intercept.HasIPv6() {
		m["ASHORE_IPV6"] = "false" // Envoy would refuse a listener with an IPv6 address
	}
	if s.Envoy.selfDiscovery() {
		m["ENABLE_SELF_DISCOVERY"] = "true"
	}
	if w.HTTPProxyPort != 0 {
		m["HTTP_PROXY_PORT"] = strconv.Itoa(w.HTTPProxyPort)
	}
	if s.capturesDNS() {
		m["DNS_CAPTURE"], m["DNS_AUTO_ALLOCATE"] = "true", "true"
	}
	return m
}

// nodeProxyConfig is Istio's ProxyConfig of this proxy.
func nodeProxyConfig(s *Settings) map[string]any {
	c := map[string]any{
		"concurrency": s.Envoy.Concurrency,
		// as protobuf's JSON wants it
		"drainDuration": strconv.FormatFloat(s.Envoy.DrainTime.Seconds(), 'f', -1, 64) + "s",
		"statusPort":    statusPort,
	}
	if s.Workload.Group != "" { // with one, the control plane waits for the first report before it sends traffic
		c["readinessProbe"] = map[string]any{"httpGet": map[string]any{"path": "/healthz/ready",
			"port": statusPort}}
	}
	return c
}
