package push

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry"
)

// Explained is what the policies of one workload say of a call.
type Explained struct {
	Target
	Judgement
	// Call is what was judged: the call that was asked about, with what is known of the target.
	Call Call
}

// Explain says what would become of a call to every workload that to means; see Targets. What call says of the port and
// the protocol is overruled by the target. Empty: there is no such workload.
func (c *Context) Explain(call Call, to string) []Explained {
	var out []Explained
	for _, t := range c.Targets(to, call.Port) {
		one := call
		one.Port, one.TCP = t.Port, t.TCP
		if a, err := netip.ParseAddr(t.Address); err == nil {
			one.Destination = a
		}
		if one.Host == "" && !t.TCP && !strings.HasPrefix(t.host, "*") {
			one.Host = t.host
		}
		out = append(out, Explained{Target: t, Judgement: c.Scope(c.Classify(t.node())).JudgeHandshake(one), Call: one})
	}
	return out
}

// Caller reads who calls: "spiffe://cluster.local/ns/shop/sa/web", the same without its scheme, "shop/web" for a service
// account of the mesh's own trust domain, or "anonymous" for a caller without a certificate. Errors: what is wrong with it.
func (c *Context) Caller(text string) (spiffe.ID, error) {
	if text == "anonymous" {
		return spiffe.ID{}, nil
	}
	namespace, account, ok := strings.Cut(text, "/")
	if ok && !strings.Contains(account, "/") && !strings.Contains(namespace, ":") {
		return spiffe.New(c.trustDomain(), namespace, account)
	}
	id, err := spiffe.Parse("spiffe://" + strings.TrimPrefix(text, "spiffe://"))
	if err != nil {
		return spiffe.ID{}, fmt.Errorf("read the caller %.200q: write shop/web, a SPIFFE ID, or anonymous: %w", text, err)
	}
	return id, nil
}

// Target is one port of a workload that a call may arrive at.
type Target struct {
	Namespace, Workload, Address string
	// Port is the workload's own; zero: not known.
	Port uint32
	// TCP says that no HTTP is expected there.
	TCP bool
	// MutualTLS says that callers of the mesh show their certificates there by themselves.
	MutualTLS bool

	host        string // that of the service
	servicePort uint32 // its port that leads here
	labels      map[string]string
}

// Name is "shop/web-1", or the address of a workload without a name.
func (t Target) Name() string { return t.Namespace + "/" + cmp.Or(t.Workload, t.Address) }

// node is a proxy as it would stand beside the target.
func (t Target) node() Node {
	labels := make([]Label, 0, len(t.labels))
	for k, v := range t.labels {
		labels = append(labels, Label{k, v})
	}
	slices.SortFunc(labels, func(a, b Label) int { return cmp.Compare(a.Key, b.Key) })
	n := Node{Namespace: t.Namespace, Labels: new(intern.Lists[Label]).Of(labels)}
	if a, err := netip.ParseAddr(t.Address); err == nil {
		n.IPs = new(intern.Lists[netip.Addr]).Of([]netip.Addr{a})
	}
	return n
}

// PortsOf are those at which what to means can be called, whatever port to names: "80 (at the workloads 8080)". Empty: there
// is no such workload.
func (c *Context) PortsOf(to string) []string {
	host, _ := splitPort(to)
	targets := c.Targets(host, 0)
	slices.SortFunc(targets, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.servicePort, b.servicePort), cmp.Compare(a.Port, b.Port))
	})
	var out []string
	for _, t := range targets {
		text := strconv.FormatUint(uint64(t.servicePort), 10)
		if t.Port != t.servicePort {
			text += " (at the workloads " + strconv.FormatUint(uint64(t.Port), 10) + ")"
		}
		out = append(out, text)
	}
	return slices.Compact(out)
}

// Targets finds the workloads that to means: a host of a service with a port or without ("web.example:80", or the number at
// which its workloads listen where the service has no port of that number), "shop/web" for workloads of that name or service account, or an address. port is the workload's own where to names none; zero:
// all of them. They are sorted, each port of a workload once.
func (c *Context) Targets(to string, port uint32) []Target {
	host, servicePort := splitPort(to)
	var out []Target
	for key, s := range c.in.Services.All() {
		list, _ := c.in.Endpoints.Get(key)
		for i := range list.Len() {
			ep := &list.Items[i]
			if strings.EqualFold(s.Host, host) {
				out = append(out, c.portsOfService(s, ep, servicePort, port)...)
			} else if isWorkload(ep, host) {
				out = append(out, c.portsTo(s, ep, 0, cmp.Or(servicePort, port))...)
			}
		}
	}
	slices.SortFunc(out, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Name(), b.Name()), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port), cmp.Compare(a.host, b.host))
	})
	return slices.CompactFunc(out, func(a, b Target) bool {
		return a.Name() == b.Name() && a.Address == b.Address && a.Port == b.Port
	})
}

// splitPort takes the port off a host; zero when it names none.
func splitPort(to string) (host string, port uint32) {
	i := strings.LastIndexByte(to, ':')
	if i < 0 || strings.Count(to, ":") > 1 && !strings.Contains(to, "]:") {
		return strings.Trim(to, "[]"), 0
	}
	n, err := strconv.ParseUint(to[i+1:], 10, 16)
	if err != nil {
		return to, 0
	}
	return strings.Trim(to[:i], "[]"), uint32(n)
}

// isWorkload says that an endpoint is the workload of that name, service account or address.
func isWorkload(ep *registry.Endpoint, name string) bool {
	namespace, workload, ok := strings.Cut(name, "/")
	if !ok {
		return ep.Address == name
	}
	return ep.Namespace == namespace && workload != "" && (ep.Workload == workload || ep.ServiceAccount == workload)
}

// portsOfService are the ports of an endpoint for a port of its service, or else for one of its own of that number.
func (c *Context) portsOfService(s *registry.Service, ep *registry.Endpoint, number, own uint32) []Target {
	if slices.ContainsFunc(s.Ports, func(p registry.Port) bool { return p.Number == number }) {
		return c.portsTo(s, ep, number, own)
	}
	if number != 0 && own != 0 && number != own {
		return nil
	}
	return c.portsTo(s, ep, 0, cmp.Or(own, number))
}

// portsTo are the ports of an endpoint for a port of its service, or of its own; zero: any.
func (c *Context) portsTo(s *registry.Service, ep *registry.Endpoint, servicePort, own uint32) []Target {
	var out []Target
	for _, p := range s.Ports {
		if number := ep.Port(p); number != 0 && (servicePort == 0 || servicePort == p.Number) && (own == 0 || own == number) {
			out = append(out, Target{
				Namespace: ep.Namespace, Workload: ep.Workload, Address: ep.Address,
				Port: number, TCP: !p.Protocol.IsHTTP() && p.Protocol != registry.Unknown,
				MutualTLS: c.inboundListeners().TakesMutual(ep, number),
				host:      s.Host, servicePort: p.Number, labels: ep.Labels,
			})
		}
	}
	return out
}
