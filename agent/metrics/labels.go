package metrics

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Workload is what labels say of one side of a connection. An empty field is unknown.
type Workload struct {
	Name, Namespace string
	// Service and Revision are the canonical service and its revision.
	Service, Revision string
	// Cluster is the cluster ID of its mesh.
	Cluster string
	// Principal is its identity, a SPIFFE ID.
	Principal string
}

// DefaultRevision is the canonical revision of a workload whose labels have none. Source: Istio.
const DefaultRevision = "latest"

// unknown is the value of labels that are not known. Source: Istio.
const unknown = "unknown"

// istioLabels returns Istio's labels, in Istio's order, as text of an exposition. raw are the labels
// of Envoy, see package xds/gen/telemetry.
func istioLabels(raw map[string]string, own Workload) string {
	peer := peerOf(raw)
	if peer.Principal == "" {
		own.Principal = "" // the connection has no mutual TLS
	}
	source, destination, policy := own, peer, unknown
	if raw["reporter"] == "destination" {
		source, destination, policy = peer, own, "none"
		if peer.Principal != "" {
			policy = "mutual_tls"
		}
	}
	var b strings.Builder
	add := func(name, value string) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `%s="%s"`, name, escape.Replace(value))
	}
	add("reporter", raw["reporter"])
	side := func(name string, w Workload) {
		for _, l := range [...]struct{ name, value string }{{"workload", w.Name}, {"canonical_service", w.Service},
			{"canonical_revision", w.Revision}, {"workload_namespace", w.Namespace}, {"principal", w.Principal},
			{"app", w.Service}, {"version", w.Revision}, {"cluster", w.Cluster}} {
			add(name+"_"+l.name, cmp.Or(l.value, unknown))
		}
	}
	side("source", source)
	side("destination", destination)
	host, service, namespace := serviceOf(raw["services"])
	add("destination_service", host)
	add("destination_service_name", service)
	add("destination_service_namespace", namespace)
	for _, name := range []string{"request_protocol", "response_code", "grpc_response_status", "response_flags"} {
		if value, ok := raw[name]; ok {
			add(name, value)
		}
	}
	add("connection_security_policy", policy)
	return b.String()
}

// escape writes the value of a label.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// peerOf returns the other side of a connection: what its endpoint's metadata says, or else its
// identity alone.
func peerOf(raw map[string]string) Workload {
	w := Workload{Principal: raw["peer_principal"]}
	if id, err := spiffe.Parse(w.Principal); err == nil {
		w.Namespace = id.Namespace
	} else {
		w.Principal = ""
	}
	parts := strings.Split(raw["peer_workload"], ";")
	if len(parts) == 5 {
		w.Name, w.Namespace, w.Service, w.Cluster = parts[0], parts[1], parts[2], parts[4]
		w.Revision = cmp.Or(parts[3], DefaultRevision)
	}
	return w
}

// serviceOf returns the labels of the first service of a cluster. services is JSON, the metadata
// "services" of the cluster; empty for a cluster without.
func serviceOf(services string) (host, name, namespace string) {
	var all []struct{ Host, Name, Namespace string }
	if json.Unmarshal([]byte(services), &all) != nil || len(all) == 0 {
		return unknown, unknown, unknown
	}
	return all[0].Host, all[0].Name, cmp.Or(all[0].Namespace, unknown)
}
