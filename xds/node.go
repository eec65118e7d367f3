package xds

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unique"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/internal/excerpt"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// nodes reads nodes. Equal lists are one pointer, so that equal nodes are equal. Safe for concurrent
// use.
type nodes struct {
	labels    intern.Lists[push.Label]
	addresses intern.Lists[netip.Addr]
}

// proxy is a client as its node describes it.
type proxy struct {
	push.Node
	// ID is the whole node ID, "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local".
	ID string
	// Agent is the version of its ashore-agent, and Envoy that of its Envoy; may be empty.
	Agent, Envoy string
	// registration is what it asks to be registered as.
	registration registrationRequest
	// purpose is what the stream is for.
	purpose purpose
}

// purpose is what a stream is for: node metadata ASHORE_STREAM. It is empty for everything, as of
// Istio's agents and Envoys without an agent.
type purpose string

const (
	// forConfig is Envoy's stream through an ashore-agent: it registers no workload.
	forConfig purpose = "config"
	// forControl is the stream of an ashore-agent itself. No proxy is counted for it.
	forControl purpose = "control"
)

const (
	// maxNode is the maximum size of an encoded node, which has some 60 KB, and maxMetadata the
	// maximum size without its extensions.
	maxNode, maxMetadata = 256 << 10, 64 << 10
	// maxID is the maximum size of a node ID, which has an address and two DNS names.
	maxID = 1 << 10
	// maxVersion is how much of a version is kept.
	maxVersion = 64
)

// read reads an encoded envoy.config.core.v3.Node. Errors: what is wrong with it.
func (ns *nodes) read(raw []byte) (*proxy, error) {
	if len(raw) > maxNode {
		return nil, fmt.Errorf("the node has %d bytes, at most %d are allowed", len(raw), maxNode)
	}
	n, err := unmarshalNode(raw)
	if err != nil {
		return nil, fmt.Errorf("read node: %w", err)
	}
	if len(n.Id) > maxID {
		return nil, fmt.Errorf("the service node has %d bytes, at most %d are allowed", len(n.Id), maxID)
	}
	parts := strings.Split(n.Id, "~")
	if len(parts) != 4 {
		return nil, fmt.Errorf("missing parts in the service node %q: want type~ip~id~domain", n.Id)
	}
	meta := metadata(n.Metadata.GetFields())
	p := &proxy{ID: n.Id, Agent: excerpt.Of(meta.text("ASHORE_VERSION"), maxVersion)}
	if n.UserAgentName == "envoy" {
		p.Envoy = excerpt.Of(buildVersion(n), maxVersion)
		v := n.GetUserAgentBuildVersion().GetVersion()
		if v != nil && v.MajorNumber == 1 && v.MinorNumber < oldestEnvoy {
			return nil, fmt.Errorf("version %s of Envoy is not supported: use 1.%d or newer", p.Envoy, oldestEnvoy)
		}
	}
	if p.Type, err = nodeType(parts[0]); err != nil {
		return nil, err
	}
	p.Node.ID, p.DNSDomain = shared(parts[2]), shared(parts[3])
	ips, err := addresses(meta.text("INSTANCE_IPS"), parts[1])
	if err != nil {
		return nil, err
	}
	p.IPs = ns.addresses.Of(ips)
	l := n.GetLocality()
	p.Locality = registry.Locality{Region: shared(l.GetRegion()), Zone: shared(l.GetZone()),
		SubZone: shared(l.GetSubZone())}
	return p, ns.readMetadata(p, meta)
}

// oldestEnvoy is the minor release of the oldest Envoy that accepts what package xds/gen makes: older
// ones lack the access logger that counts requests.
const oldestEnvoy = 39

// fieldExtensions is Node.extensions.
const fieldExtensions = 9

// unmarshalNode reads an encoded Node without its extensions, which are nearly all of its 60 KB.
func unmarshalNode(raw []byte) (*corev3.Node, error) {
	rest := make([]byte, 0, 4<<10)
	for len(raw) > 0 {
		num, _, size := protowire.ConsumeField(raw)
		if size < 0 {
			return nil, fmt.Errorf("malformed: %w", protowire.ParseError(size))
		}
		if num != fieldExtensions {
			rest = append(rest, raw[:size]...)
		}
		raw = raw[size:]
	}
	if len(rest) > maxMetadata {
		return nil, fmt.Errorf("it has %d bytes without its extensions, at most %d are allowed", len(rest), maxMetadata)
	}
	n := &corev3.Node{}
	if err := proto.Unmarshal(rest, n); err != nil {
		return nil, fmt.Errorf("malformed: %w", err)
	}
	return n, nil
}

// buildVersion is the version of the client's program, "1.40.0"; empty if it does not say.
func buildVersion(n *corev3.Node) string {
	if v := n.GetUserAgentVersion(); v != "" {
		return v
	}
	v := n.GetUserAgentBuildVersion().GetVersion()
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%d.%d.%d", v.MajorNumber, v.MinorNumber, v.Patch)
}

// metadata is that of a node. Istio's has texts and maps; a number or a boolean counts as text.
type metadata map[string]*structpb.Value

func (m metadata) text(name string) string { return textOf(m[name]) }

func (m metadata) fields(name string) metadata { return m[name].GetStructValue().GetFields() }

// texts are the texts of the metadata, sorted by key.
func (m metadata) texts() (out []push.Label) {
	for k, v := range m {
		if text := v.GetStringValue(); text != "" {
			out = append(out, push.Label{Key: shared(k), Value: shared(text)})
		}
	}
	slices.SortFunc(out, func(a, b push.Label) int { return strings.Compare(a.Key, b.Key) })
	return out
}

func textOf(v *structpb.Value) string {
	switch v := v.AsInterface().(type) {
	case string:
		return v
	case float64, bool:
		return fmt.Sprint(v)
	}
	return ""
}

// readMetadata takes in the node's metadata: Istio's names (pkg/model/proxy.go there).
func (ns *nodes) readMetadata(p *proxy, m metadata) error {
	if m.text("GENERATOR") == "grpc" {
		return errors.New("gRPC clients without a proxy (node metadata GENERATOR is grpc) are not supported yet: " +
			"let the application connect through its Envoy, without the xds: scheme")
	}
	p.Namespace = shared(m.text("NAMESPACE"))
	if p.Namespace == "" {
		p.Namespace, _, _ = strings.Cut(p.DNSDomain, ".")
	}
	p.ServiceAccount = shared(m.text("SERVICE_ACCOUNT"))
	p.Network = shared(m.text("NETWORK"))
	p.registration = registrationRequest{group: m.text("AUTO_REGISTER_GROUP"),
		probed: len(m.fields("PROXY_CONFIG").fields("readinessProbe")) > 0}
	if p.registration.group == "" {
		p.registration.entry = m.text("WORKLOAD_ENTRY")
	}
	labels := make([]push.Label, 0, len(m.fields("LABELS")))
	for k, v := range m.fields("LABELS") {
		labels = append(labels, push.Label{Key: shared(k), Value: shared(textOf(v))})
	}
	slices.SortFunc(labels, func(a, b push.Label) int { return strings.Compare(a.Key, b.Key) })
	p.Labels = ns.labels.Of(labels)
	p.Metadata = ns.labels.Of(m.texts())
	switch mode := m.text("INTERCEPTION_MODE"); mode {
	case "", "REDIRECT":
		p.Interception = push.Redirect
	case "TPROXY":
		p.Interception = push.TProxy
		if m.text("ASHORE_IPV6") == "false" {
			p.Interception = push.TProxyIPv4
		}
	case "NONE":
		p.Interception = push.None
	default:
		return fmt.Errorf("node metadata INTERCEPTION_MODE is %.40q, want REDIRECT, TPROXY or NONE", mode)
	}
	// Istio also read DNS_AUTO_ALLOCATE until its control plane allocated addresses by default, as
	// Ashore does.
	p.purpose = purpose(m.text("ASHORE_STREAM"))
	p.CapturesDNS = m.text("DNS_CAPTURE") == "true"
	p.SelfDiscovery = m.text("ENABLE_SELF_DISCOVERY") == "true"
	if port := m.text("HTTP_PROXY_PORT"); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return fmt.Errorf("node metadata HTTP_PROXY_PORT is %.40q, want a port number", port)
		}
		p.HTTPProxyPort = uint32(n)
	}
	return nil
}

// nodeType reads the first part of a node ID.
func nodeType(s string) (push.NodeType, error) {
	switch s {
	case "sidecar":
		return push.Sidecar, nil
	case "router":
		return push.Router, nil
	}
	return 0, fmt.Errorf("node type %.40q is not supported: sidecar and router are", s)
}

// maxAddresses is how many addresses of a node are used.
const maxAddresses = 256

// addresses returns the node's addresses, from its metadata or else from its ID, without link-local
// ones. Errors: there are none.
func addresses(list, id string) ([]netip.Addr, error) {
	var out []netip.Addr
	for s := range strings.SplitSeq(list, ",") {
		if len(out) == maxAddresses {
			break
		}
		if a, err := netip.ParseAddr(strings.TrimSpace(s)); err == nil && !a.IsLinkLocalUnicast() &&
			!slices.Contains(out, a.Unmap()) {
			out = append(out, a.Unmap())
		}
	}
	if a, err := netip.ParseAddr(id); err == nil && len(out) == 0 {
		out = append(out, a.Unmap())
	}
	if len(out) == 0 {
		return nil, errors.New("no valid IP address in the service node id or metadata")
	}
	return out, nil
}

// shared returns s, one copy for all who hold an equal text.
func shared(s string) string { return unique.Make(s).Value() }
