package admin

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Version is which build answers.
type Version = build.Info

// Status is how ashored and every proxy are.
type Status struct {
	Version Version   `json:"version"`
	Started time.Time `json:"started"`
	// Ready means that proxies are served: every source has delivered its first complete state.
	Ready bool `json:"ready"`
	// Waiting names the sources that Ready waits for.
	Waiting []string            `json:"waiting,omitempty"`
	Config  ConfigStatus        `json:"config"`
	Sources []feed.SourceStatus `json:"sources"`
	Proxies []ProxyStatus       `json:"proxies"`
	// Prometheus is the URL of the one that scrapes the mesh; empty: it is not known.
	Prometheus string `json:"prometheus,omitempty"`
}

// ConfigStatus counts what is in use.
type ConfigStatus struct {
	// Objects is the number of objects by kind.
	Objects   map[string]int `json:"objects"`
	Services  int            `json:"services"`
	Endpoints int            `json:"endpoints"`
	Errors    int            `json:"errors"`
	Warnings  int            `json:"warnings"`
	// Conflicts counts in how much sources contradict one another.
	Conflicts int `json:"conflicts"`
	// Contexts is how many were built since the start.
	Contexts int `json:"contexts"`
}

// Reader is the kind of another control plane, which reads only configuration objects (over MCP).
const Reader = "reader"

// ProxyStatus is one connected proxy.
type ProxyStatus struct {
	// ID is "web-1.shop", or Node where several proxies have that.
	ID string `json:"id"`
	// Node is the whole node ID, "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local".
	Node      string `json:"node"`
	Kind      string `json:"kind"` // "sidecar", "router" or Reader
	Namespace string `json:"namespace"`
	// Agent and Envoy are the versions of its ashore-agent and its Envoy; may be empty.
	Agent string `json:"agent,omitempty"`
	Envoy string `json:"envoy,omitempty"`
	// Peer is the address that it connected from.
	Peer      string    `json:"peer"`
	Connected time.Time `json:"connected"`
	// Identity is what it proved to be, a SPIFFE ID, by the certificate of that serial number, in
	// hexadecimal digits, which ends at Expires; empty and zero on a connection without TLS.
	Identity string    `json:"identity,omitempty"`
	Serial   string    `json:"serial,omitempty"`
	Expires  time.Time `json:"expires,omitzero"`
	// Bundle is the ID of the trusted roots that it acknowledged last; empty when it did not ask
	// for them.
	Bundle string `json:"bundle,omitempty"`
	// Delta is false for state of the world.
	Delta bool         `json:"delta"`
	Types []TypeStatus `json:"types"`
}

// TypeStatus is what a proxy has of one xDS type.
type TypeStatus struct {
	// Type is the short name: cds, eds, lds, rds, nds, …; of configuration objects one of the names
	// that the kind has had, networking.istio.io/v1/VirtualService.
	Type string `json:"type"`
	// Objects is the kind of configuration object that Type is a name of, VirtualService; empty: it
	// is none.
	Objects string `json:"objects,omitempty"`
	// Subscribed is the number of subscribed names; zero if Everything.
	Subscribed int `json:"subscribed"`
	// Everything means a subscription to all resources.
	Everything bool `json:"everything,omitempty"`
	// Resources is how many there are for it now.
	Resources int `json:"resources"`
	// AcknowledgedAt is when it accepted a response last; zero before the first time.
	AcknowledgedAt time.Time `json:"acknowledgedAt,omitzero"`
	// State is SYNCED, NOT_SENT, STALE (a change is not acknowledged) or ERROR (it rejects something).
	State string `json:"state"`
	// Latest means that it has everything but what it rejected.
	Latest bool `json:"latest"`
	// InFlight is how many responses it has not answered yet.
	InFlight int `json:"inFlight,omitempty"`
	// Rejections counts the responses that it rejected since it connected.
	Rejections uint64 `json:"rejections,omitempty"`
	// Rejected is what it does not take: it is not sent again until it changes.
	Rejected []Rejection `json:"rejected,omitempty"`
}

// Rejection is what a proxy refused.
type Rejection struct {
	// Time is when; zero when that is not known.
	Time time.Time `json:"time,omitzero"`
	// Resource is its name; empty when the proxy rejected a response and the culprit is not found
	// yet.
	Resource string `json:"resource,omitempty"`
	// Version is the one that it rejected.
	Version string `json:"version,omitempty"`
	// Error are Envoy's own words.
	Error string `json:"error"`
	// Patches made or changed the resource, the most likely cause first.
	Patches []Patch `json:"patches,omitempty"`
}

// Patch is a patch of an EnvoyFilter, or a TrafficExtension.
type Patch struct {
	Object string `json:"object"`
	Field  string `json:"field"`
	Origin Origin `json:"origin"`
	// Changed means that it differs from what the proxy acknowledged last.
	Changed bool `json:"changed,omitempty"`
}

// String is the patch with its place, "EnvoyFilter shop/limits spec.configPatches[0] (limits.yaml:3)".
func (p Patch) String() string {
	text := p.Object + " " + p.Field
	if p.Origin.File != "" {
		text += fmt.Sprintf(" (%s:%d)", p.Origin.File, p.Origin.Line)
	}
	return text
}

// PatchesText joins patches for people. Those that changed are first.
func PatchesText(list []Patch) string {
	var texts []string
	changed := false
	for _, p := range list {
		changed = changed || p.Changed
		texts = append(texts, p.String())
	}
	text := strings.Join(texts, ", ")
	if changed {
		return "Patches, first those changed since the last accepted version: " + text
	}
	return "Patches, the newest first: " + text
}

// Object is one object of configuration as operators write it, with where it was read.
type Object struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   Metadata        `json:"metadata"`
	Spec       json.RawMessage `json:"spec"`
	// Origin is Ashore's own: where it was read. Not part of what operators write.
	Origin Origin `json:"origin"`
}

// Metadata are the parts of Kubernetes' object metadata that have a meaning here.
type Metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Created     time.Time         `json:"creationTimestamp,omitzero"`
}

// Origin is where an object was read.
type Origin struct {
	Source   string `json:"source"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Revision string `json:"revision,omitempty"`
}

// ObjectQuery selects objects. An empty namespace or name means all.
type ObjectQuery struct {
	// Kind is a name of the kind, as operators write it: "virtualservice", "vs".
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Store selects the objects of the store, active or not, instead of the active ones of all
	// sources.
	Store bool `json:"store,omitempty"`
}

// DumpRequest selects what one proxy is sent. An empty type means all.
type DumpRequest struct {
	Proxy string `json:"proxy"`
	Type  string `json:"type"`
}

// Dump is what one proxy is sent.
type Dump struct {
	Proxy string     `json:"proxy"`
	Types []DumpType `json:"types"`
}

// DumpType is what a proxy is sent of one type.
type DumpType struct {
	Type      string         `json:"type"`
	TypeURL   string         `json:"typeUrl"`
	Resources []DumpResource `json:"resources"`
}

// DumpResource is one Envoy resource. Secrets are never in it.
type DumpResource struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Bytes is the size on the wire.
	Bytes int `json:"bytes"`
	// Body is the resource in protobuf's JSON.
	Body json.RawMessage `json:"body"`
}

// AcceptRequest names the source whose removals are accepted.
type AcceptRequest struct {
	Source string `json:"source"`
}

// Accepted is the source, as it is named in logs.
type Accepted struct {
	Source string `json:"source"`
	// Removed is how many items were removed.
	Removed int `json:"removed"`
}

// ReleasedVIPs are the hosts whose virtual IPs were released.
type ReleasedVIPs struct {
	Hosts []string `json:"hosts"`
}

// AuditQuery selects events of the audit log.
type AuditQuery struct {
	// Lines is how many of the latest events there are, 0 to 10,000.
	Lines int `json:"lines"`
}
