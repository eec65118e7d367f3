package metrics

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/envoylabel"
	"github.com/ashore-mesh/ashore/internal/peername"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Workload is what labels say of one side of a connection. An empty field is unknown.
type Workload struct {
	peername.Name
	Namespace string
	// Principal is its identity, a SPIFFE ID.
	Principal string
}

// unknown is the value of labels that are not known. Source: Istio.
const unknown = "unknown"

// label is a label of an exposition.
type label struct{ name, value string }

// istioLabels returns Istio's labels as text of an exposition. raw are the labels of Envoy, see
// package xds/gen/telemetry.
func istioLabels(raw map[string]string, own Workload) string {
	if name, ok := raw["cluster_name"]; ok {
		raw = clusterLabels(name)
	}
	peer := peerOf(raw, own.Principal)
	if peer.Principal == "" {
		own.Principal = "" // the connection has no mutual TLS
	}
	source, destination, policy := own, peer, unknown
	if raw[envoylabel.Reporter] == "destination" {
		source, destination, policy = peer, own, "none"
		if peer.Principal != "" {
			policy = "mutual_tls"
		}
	}
	labels := slices.Concat([]label{{"reporter", raw[envoylabel.Reporter]}}, source.labels("source_"),
		destination.labels("destination_"), serviceLabels(raw[envoylabel.Service]), []label{{"connection_security_policy", policy}})
	labels = withOthers(labels, raw)
	text := make([]string, len(labels))
	for i, l := range labels {
		text[i] = fmt.Sprintf(`%s="%s"`, l.name, escape.Replace(strings.ToValidUTF8(l.value, "\uFFFD")))
	}
	return strings.Join(text, ",")
}

// clusterLabels are labels of a metric of a whole cluster: the other end of a connection is unknown.
func clusterLabels(name string) map[string]string {
	out := map[string]string{envoylabel.Reporter: "source", "request_protocol": "grpc", "connection_security_policy": unknown}
	if strings.HasPrefix(name, "inbound|") {
		out[envoylabel.Reporter] = "destination"
	}
	parts := strings.Split(name, "|") // outbound|PORT|SUBSET|HOST
	if host := parts[len(parts)-1]; len(parts) == 4 {
		name, namespace := peername.ServiceOf(host)
		out[envoylabel.Service] = host + ";" + name + ";" + namespace
	}
	return out
}

// withOthers adds those of Envoy's labels that stay as they are, such as response_code, or that an
// operator configured, in the order of their names. They replace Istio's of the same name. Then it
// removes what the operator removed.
func withOthers(labels []label, raw map[string]string) []label {
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		i := slices.IndexFunc(labels, func(l label) bool { return l.name == name })
		switch {
		case name != envoylabel.Reporter && slices.Contains(envoylabel.All(), name):
		case i >= 0:
			labels[i].value = raw[name]
		default:
			labels = append(labels, label{name, raw[name]})
		}
	}
	removed := strings.Split(raw[envoylabel.RemovedTags], ",")
	return slices.DeleteFunc(labels, func(l label) bool { return slices.Contains(removed, l.name) })
}

// labels are those of one side of a connection.
func (w Workload) labels(side string) []label {
	out := []label{{"workload", w.Name.Workload}, {"canonical_service", w.Service}, {"canonical_revision", w.Revision},
		{"workload_namespace", w.Namespace}, {"principal", w.Principal}, {"app", w.Service}, {"version", w.Revision},
		{"cluster", w.Cluster}}
	for i := range out {
		out[i] = label{side + out[i].name, cmp.Or(out[i].value, unknown)}
	}
	return out
}

// escape writes the value of a label.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// peerOf returns the other side of a connection of a workload with the identity own: what its
// endpoint's metadata or its certificate says, or else its identity alone. Other authorities may
// write any name into certificates, so only names of the workload's own trust domain count.
func peerOf(raw map[string]string, own string) Workload {
	w := Workload{Principal: raw[envoylabel.PeerPrincipal]}
	id, err := spiffe.Parse(w.Principal)
	if err == nil {
		w.Namespace = id.Namespace
	} else {
		w.Principal = ""
	}
	if raw[envoylabel.Reporter] == "destination" {
		local, _ := spiffe.Parse(own) // zero without an identity
		if err == nil && id.TrustDomain == local.TrustDomain {
			w.Name, _ = peername.Parse(raw[envoylabel.PeerWorkload])
		}
		return w
	}
	if p := strings.Split(raw[envoylabel.PeerWorkload], ";"); len(p) == 5 {
		w.Namespace = p[1]
		w.Name = peername.Name{Workload: p[0], Service: p[2], Cluster: p[4],
			Revision: cmp.Or(p[3], peername.DefaultRevision)}
	}
	return w
}

// serviceLabels are those of a service, which is "host;name;namespace".
func serviceLabels(service string) []label {
	host, rest, _ := strings.Cut(service, ";")
	name, namespace, _ := strings.Cut(rest, ";")
	return []label{{"destination_service", cmp.Or(host, unknown)}, {"destination_service_name", cmp.Or(name, unknown)},
		{"destination_service_namespace", cmp.Or(namespace, unknown)}}
}
