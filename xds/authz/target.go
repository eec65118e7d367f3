package authz

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// Explained is what one workload decides about a request.
type Explained struct {
	Target
	Decision
	// Request is the one that was asked about, with what is known of the target.
	Request Request
}

// Explain says what becomes of a request to every workload that to means; see Targets. The port and
// the protocol are those of the target. It is empty when there is no such workload.
func Explain(c *push.Context, r Request, to string) []Explained {
	var out []Explained
	for _, t := range Targets(c, to, r.Port) {
		r := r
		r.Port, r.TCP = t.Port, t.TCP
		if a, err := netip.ParseAddr(t.Address); err == nil {
			r.Destination = a
		}
		if r.Host == "" && !t.TCP && !strings.HasPrefix(t.Host, "*") {
			r.Host = t.Host
		}
		scope := c.Scope(c.Classify(t.Node()))
		out = append(out, Explained{Target: t, Decision: Judge(scope, r), Request: r})
	}
	return out
}

// Caller reads who calls: a SPIFFE ID with or without "spiffe://", "shop/web" for a service account
// of the mesh's trust domain, or "anonymous" for a caller without a certificate.
func Caller(c *push.Context, text string) (spiffe.ID, error) {
	if text == "anonymous" {
		return spiffe.ID{}, nil
	}
	namespace, account, ok := strings.Cut(text, "/")
	if ok && !strings.Contains(account, "/") && !strings.Contains(namespace, ":") {
		return spiffe.New(c.Inputs().Mesh.TrustDomains()[0], namespace, account)
	}
	id, err := spiffe.Parse("spiffe://" + strings.TrimPrefix(text, "spiffe://"))
	if err != nil {
		const help = "write shop/web, a SPIFFE ID, or anonymous"
		return spiffe.ID{}, fmt.Errorf("read the caller %.200q: %s: %w", text, help, err)
	}
	return id, nil
}

// Target is one port of a workload that a request may arrive at.
type Target struct {
	Namespace, Workload, Address string
	// Port is the workload's own; zero: unknown.
	Port uint32
	// TCP means that no HTTP is expected there.
	TCP bool
	// MutualTLS means that callers of the mesh show their certificates there by themselves.
	MutualTLS bool

	// Host is that of the service, one of them if there are several; empty: it serves none.
	Host string

	// Type is that of its proxy: a gateway is a push.Router.
	Type push.NodeType

	labels map[string]string
}

// TargetOf is a proxy, with no port.
func TargetOf(n push.Node) Target {
	t := Target{Namespace: n.Namespace, Workload: n.ID, Type: n.Type, labels: map[string]string{}}
	for _, l := range n.Labels.Items() {
		t.labels[l.Key] = l.Value
	}
	if ips := n.IPs.Items(); len(ips) > 0 {
		t.Address = ips[0].String()
	}
	return t
}

// Name is "shop/web-1", or the address of a workload without a name.
func (t Target) Name() string { return t.Namespace + "/" + cmp.Or(t.Workload, t.Address) }

// Node is the proxy beside the target.
func (t Target) Node() push.Node {
	labels := make([]push.Label, 0, len(t.labels))
	for k, v := range t.labels {
		labels = append(labels, push.Label{Key: k, Value: v})
	}
	slices.SortFunc(labels, func(a, b push.Label) int { return cmp.Compare(a.Key, b.Key) })
	n := push.Node{Type: t.Type, Namespace: t.Namespace, Labels: new(intern.Lists[push.Label]).Of(labels)}
	if a, err := netip.ParseAddr(t.Address); err == nil {
		n.IPs = new(intern.Lists[netip.Addr]).Of([]netip.Addr{a})
	}
	return n
}

// Targets finds the workloads that to names. It is one of:
//
//   - the host of a service, with one of its ports, a port of its workloads or no port: "web.example:80";
//   - a workload or service account: "shop/web";
//   - the address of a workload.
//
// port is the workload's own port where to names none; zero means all ports. Targets are sorted,
// each port of a workload once.
func Targets(c *push.Context, to string, port uint32) []Target {
	host, number := SplitPort(to)
	in := c.Inputs()
	listeners := c.Scope(c.Classify(push.Node{})).InboundListeners
	var out []Target
	for key, s := range in.Services.All() {
		byHost := strings.EqualFold(s.Host, host)
		_, ofService := s.Port(number)
		list := in.Endpoints.At(key)
		for i := range list.Len() {
			ep := &list.Items[i]
			if !byHost && !isWorkload(ep, host) {
				continue
			}
			for _, p := range s.Ports {
				own := ep.Port(p)
				wanted := number == 0 || own == number
				if byHost && ofService {
					wanted = p.Number == number
				}
				if own != 0 && wanted && (port == 0 || own == port || number != 0 && !byHost) {
					out = append(out, Target{
						Namespace: ep.Namespace, Workload: ep.Workload, Address: ep.Address,
						Port: own, TCP: !p.Protocol.IsHTTP() && p.Protocol != registry.Unknown,
						MutualTLS: listeners.AcceptsMTLS(ep, own),
						Host:      s.Host, labels: ep.Labels,
					})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Name(), b.Name()), cmp.Compare(a.Address, b.Address),
			cmp.Compare(a.Port, b.Port), cmp.Compare(a.Host, b.Host))
	})
	return slices.CompactFunc(out, func(a, b Target) bool {
		return a.Name() == b.Name() && a.Address == b.Address && a.Port == b.Port
	})
}

// SplitPort takes the port off a host; zero when it names none.
func SplitPort(to string) (host string, port uint32) {
	host, text, err := net.SplitHostPort(to)
	n, bad := strconv.ParseUint(text, 10, 16)
	if err != nil || bad != nil {
		return strings.Trim(to, "[]"), 0
	}
	return host, uint32(n)
}

// isWorkload says that an endpoint is the workload of that name, service account or address.
func isWorkload(ep *registry.Endpoint, name string) bool {
	namespace, workload, ok := strings.Cut(name, "/")
	if !ok {
		return ep.Address == name
	}
	return ep.Namespace == namespace && workload != "" && (ep.Workload == workload || ep.ServiceAccount == workload)
}
