package xds

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unique"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// errNodeType is the answer to a client of another kind.
var errNodeType = errors.New("invalid node type (valid types: [sidecar router waypoint ztunnel])")

// errUnserved is the answer to clients of a kind that is known and not served.
var errUnserved = errors.New("node type is not supported yet")

// nodes reads what clients say of themselves. An encoded Node is some 60 KB, nearly all of it the
// list of extensions that the client was built with: it is read where it lies, and the list, equal
// for all clients of one build, only once.
type nodes struct {
	capabilities func(extensions []string) push.Capabilities // set once
	labels       intern.Lists[push.Label]
	addresses    intern.Lists[netip.Addr]
	seeds        [2]maphash.Seed // set once

	mu    sync.Mutex
	known map[[2]uint64]push.Capabilities // guarded by mu: by hash of the extensions
}

// maxBuilds bounds how many extension lists are remembered.
const maxBuilds = 256

func newNodes(capabilities func([]string) push.Capabilities) *nodes {
	return &nodes{
		capabilities: capabilities,
		seeds:        [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		known:        map[[2]uint64]push.Capabilities{},
	}
}

// proxy is a client as it introduced itself.
type proxy struct {
	push.Node
	// ID is the whole node ID, "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local".
	ID string
	// Version is the client's Istio version, or its user agent's name and version.
	Version string
	// Agent is the version of its ashore-agent, and Envoy that of its Envoy; empty: it has none, or
	// does not say.
	Agent, Envoy string
	// enrolment is as what it asks to be registered.
	enrolment enrolment
	// purpose is what the stream is for.
	purpose purpose
}

// purpose is what a stream is for: node metadata ASHORE_STREAM. Empty means everything, as Istio's
// agents and Envoys without an agent have it.
type purpose string

const (
	// forConfig is Envoy's stream through an ashore-agent: it registers no workload.
	forConfig purpose = "config"
	// forControl is the stream of an ashore-agent itself. No proxy is counted for it.
	forControl purpose = "control"
)

const (
	// maxNode bounds an encoded node, which has some 60 KB.
	maxNode = 256 << 10
	// maxID bounds a node ID, which has an address and two DNS names.
	maxID = 1 << 10
	// maxVersion is how much of a version is kept.
	maxVersion = 64
	// maxLabels bounds the labels of a node, and maxText every text that is kept of it.
	maxLabels, maxText = 256, 1 << 10
)

// rawNode are the parts of an encoded Node.
type rawNode struct {
	id, agent, build string
	metadata         map[string]value
	locality         registry.Locality
	extensions       []byte // the part of the node that holds them
}

// read makes a proxy of an encoded envoy.config.core.v3.Node. Errors say what is wrong with it.
func (ns *nodes) read(raw []byte) (*proxy, error) {
	if len(raw) > maxNode {
		return nil, fmt.Errorf("the node has %d bytes, at most %d are allowed", len(raw), maxNode)
	}
	n, err := scanNode(raw)
	if err != nil {
		return nil, fmt.Errorf("read node: %w", err)
	}
	if len(n.id) > maxID {
		return nil, fmt.Errorf("the service node has %d bytes, at most %d are allowed", len(n.id), maxID)
	}
	parts := strings.Split(n.id, "~")
	if len(parts) != 4 {
		return nil, fmt.Errorf("missing parts in the service node %q: want type~ip~id~domain", n.id)
	}
	p := &proxy{ID: n.id, Version: n.metadata["ISTIO_VERSION"].text}
	if p.Version == "" {
		p.Version = strings.TrimSpace(n.agent + " " + n.build)
	}
	p.Agent = n.metadata["ASHORE_VERSION"].text
	if n.agent == "envoy" {
		p.Envoy = n.build
	}
	for _, text := range []*string{&p.Version, &p.Agent, &p.Envoy} {
		if len(*text) > maxVersion {
			*text = strings.ToValidUTF8((*text)[:maxVersion], "")
		}
	}
	if p.Type, err = nodeType(parts[0]); err != nil {
		return nil, err
	}
	p.Node.ID, p.DNSDomain = shared(parts[2]), shared(parts[3])
	ips, err := addresses(n.metadata["INSTANCE_IPS"].text, parts[1])
	if err != nil {
		return nil, err
	}
	p.IPs = ns.addresses.Of(ips)
	p.Locality = n.locality
	if size := max(len(n.locality.Region), len(n.locality.Zone), len(n.locality.SubZone)); size > maxText {
		return nil, fmt.Errorf("a part of the node's locality has %d bytes, at most %d are allowed", size, maxText)
	}
	if err := ns.metadata(p, n.metadata); err != nil {
		return nil, err
	}
	p.Capabilities = ns.capable(n.extensions)
	return p, nil
}

// metadata takes in the node's metadata: Istio's names (pkg/model/proxy.go there).
func (ns *nodes) metadata(p *proxy, m map[string]value) error {
	for _, name := range []string{"NAMESPACE", "SERVICE_ACCOUNT", "NETWORK", "INTERCEPTION_MODE", "HTTP_PROXY_PORT",
		"AUTO_REGISTER_GROUP", "WORKLOAD_ENTRY"} {
		if n := len(m[name].text); n > maxText {
			return fmt.Errorf("node metadata %s has %d bytes, at most %d are allowed", name, n, maxText)
		}
	}
	p.Namespace = shared(m["NAMESPACE"].text)
	if p.Namespace == "" {
		p.Namespace, _, _ = strings.Cut(p.DNSDomain, ".")
	}
	p.ServiceAccount = shared(m["SERVICE_ACCOUNT"].text)
	p.Network = shared(m["NETWORK"].text)
	p.enrolment = enrolment{group: m["AUTO_REGISTER_GROUP"].text,
		probed: len(m["PROXY_CONFIG"].fields["readinessProbe"].fields) > 0}
	if p.enrolment.group == "" {
		p.enrolment.entry = m["WORKLOAD_ENTRY"].text
	}
	if n := len(m["LABELS"].fields); n > maxLabels {
		return fmt.Errorf("node metadata LABELS holds %d labels, at most %d are allowed", n, maxLabels)
	}
	labels := make([]push.Label, 0, len(m["LABELS"].fields))
	for k, v := range m["LABELS"].fields {
		if max(len(k), len(v.text)) > maxText {
			return fmt.Errorf("node metadata LABELS holds a label of %d bytes, at most %d are allowed",
				max(len(k), len(v.text)), maxText)
		}
		labels = append(labels, push.Label{Key: shared(k), Value: shared(v.text)})
	}
	slices.SortFunc(labels, func(a, b push.Label) int { return strings.Compare(a.Key, b.Key) })
	p.Labels = ns.labels.Of(labels)
	switch mode := m["INTERCEPTION_MODE"].text; mode {
	case "", "REDIRECT":
		p.Interception = push.Redirect
	case "TPROXY":
		p.Interception = push.TProxy
		if m["ASHORE_IPV6"].text == "false" {
			p.Interception = push.TProxyIPv4
		}
	case "NONE":
		p.Interception = push.None
	default:
		return fmt.Errorf("node metadata INTERCEPTION_MODE is %q, want REDIRECT, TPROXY or NONE", mode)
	}
	// Istio also read DNS_AUTO_ALLOCATE until its control plane allocated addresses by default, as
	// Ashore does.
	p.purpose = purpose(m["ASHORE_STREAM"].text)
	p.CapturesDNS = m["DNS_CAPTURE"].text == "true"
	if port := m["HTTP_PROXY_PORT"].text; port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return fmt.Errorf("node metadata HTTP_PROXY_PORT is %q, want a port number", port)
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
	case "waypoint", "ztunnel", "agentgateway":
		return 0, fmt.Errorf("%w: %s; sidecar and router are", errUnserved, s)
	}
	return 0, errNodeType
}

// maxAddresses bounds how many addresses of a node count; the rest is left out.
const maxAddresses = 256

// addresses are the node's: its metadata's list counts before its ID. Link-local ones and what is
// no address are left out.
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

// capable says what a client with these extensions can take. Lists of one content are read once.
func (ns *nodes) capable(extensions []byte) push.Capabilities {
	key := [2]uint64{maphash.Bytes(ns.seeds[0], extensions), maphash.Bytes(ns.seeds[1], extensions)}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if c, ok := ns.known[key]; ok {
		return c
	}
	var names []string
	_ = eachField(extensions, func(num protowire.Number, b []byte, _ uint64) { // read before
		if num != fieldExtensions {
			return
		}
		if name := extension(b); name != "" {
			names = append(names, name)
		}
	})
	if len(ns.known) >= maxBuilds {
		clear(ns.known)
	}
	c := ns.capabilities(names)
	ns.known[key] = c
	return c
}

// extension reads the name of an encoded envoy.config.core.v3.Extension, "" when it is disabled.
func extension(raw []byte) string {
	var name string
	disabled := false
	eachField(raw, func(num protowire.Number, b []byte, n uint64) {
		switch num {
		case 1:
			name = string(b)
		case 5:
			disabled = n != 0
		}
	})
	if disabled {
		return ""
	}
	return name
}

// shared returns s, one copy for all who hold an equal text.
func shared(s string) string { return unique.Make(s).Value() }
