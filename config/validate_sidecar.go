package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// sidecar checks what a workload's proxy listens to and what it can reach.
func (c *checker) sidecar(s *networking.Sidecar) {
	if s.WorkloadSelector != nil && len(s.WorkloadSelector.Labels) == 0 {
		c.errorf("spec.workloadSelector.labels",
			"the labels are missing: write them, or remove workloadSelector for the whole namespace")
	}
	if len(others(s, "workloadSelector")) == 0 {
		c.errorf("spec", "nothing is set: write egress, ingress or outboundTrafficPolicy")
	}
	ports := map[uint32]int{}
	for i, l := range s.Ingress {
		n := l.Port.GetNumber()
		if j, twice := ports[n]; twice && n != 0 {
			c.errorf(at("spec.ingress", i)+".port.number", "port %d is that of spec.ingress[%d] too", n, j)
		}
		ports[n] = i
	}
	c.egressListeners(s.Egress)
}

// ingress checks one inbound listener.
func (c *checker) ingress(path string, l *networking.IstioIngressListener) {
	if l.Port == nil {
		c.errorf(path+".port", "the port is missing: write number and protocol")
	} else {
		c.sidecarPort(path+".port", l.Bind, l.Port)
		c.why(path+".port.protocol", checkSidecarProtocol(l.Port.Protocol))
	}
	if l.Tls == nil {
		return
	}
	// Clients that are not of the mesh.
	if p := strings.ToUpper(l.GetPort().GetProtocol()); p != "HTTPS" && p != "TLS" {
		c.errorf(path+".tls", "protocol %s is without TLS: choose HTTPS or TLS, or remove tls", quote(p))
	}
	if l.Tls.HttpsRedirect {
		c.errorf(path+".tls.httpsRedirect", "only a gateway can redirect to HTTPS")
	}
	switch l.Tls.Mode {
	case networking.ServerTLSSettings_SIMPLE, networking.ServerTLSSettings_MUTUAL, networking.ServerTLSSettings_OPTIONAL_MUTUAL:
	default:
		c.errorf(path+".tls.mode",
			"an inbound listener ends TLS by SIMPLE, MUTUAL or OPTIONAL_MUTUAL, not by %s; the mesh's own mutual TLS is for a PeerAuthentication to ask for", l.Tls.Mode)
	}
}

// sidecarPort checks the port at which a proxy listens. It warns of one where redirected
// connections arrive. Only the settings of the mesh, and whether a proxy takes redirected
// connections, decide whether that listener is left out.
func (c *checker) sidecarPort(path, bind string, p *networking.SidecarPort) {
	if p.Number == 0 {
		c.port(path+".number", 0)
	}
	c.proxyPort(path+".number", bind, p.Number)
	if (everywhere(bind) || bind == "127.0.0.1" || bind == "::1") &&
		(p.Number == DefaultOutboundPort || p.Number == DefaultInboundPort) {
		c.warnf(path+".number", "redirected connections arrive at port %d, unless mesh.proxyListenPort and mesh.proxyInboundListenPort "+
			"are others: proxies that take such connections leave this listener out; choose another port", p.Number)
	}
}

// checkSidecarProtocol is the rule for the protocol of a port. Without one, the first bytes of a
// connection decide.
func checkSidecarProtocol(name string) string {
	if name == "" {
		return ""
	}
	return oneProtocol("UDP")(name)
}

// httpProxy is the protocol of an egress port to which clients send requests for absolute URLs.
const httpProxy = "HTTP_PROXY"

// checkDefaultEndpoint is the rule for where an inbound listener passes traffic on to.
// Source: istio.io, Sidecar, IstioIngressListener.defaultEndpoint: loopback, the workload's own
// address (0.0.0.0 or [::]), or a socket.
func checkDefaultEndpoint(endpoint string) string {
	if name, unix := strings.CutPrefix(endpoint, unixPrefix); unix {
		return checkUnix(name)
	}
	a, err := netip.ParseAddrPort(endpoint)
	if err != nil || a.Port() == 0 {
		return quote(endpoint) + " is not an endpoint: write 127.0.0.1:PORT, [::1]:PORT, 0.0.0.0:PORT, [::]:PORT or unix:///path"
	}
	if why := checkAddress(a.Addr().String()); why != "" {
		return why
	}
	if !a.Addr().IsLoopback() && !a.Addr().IsUnspecified() {
		return quote(endpoint) + " is not this workload: write 127.0.0.1:PORT, [::1]:PORT, or 0.0.0.0:PORT for its own address"
	}
	return ""
}

// egressListeners checks the outbound listeners.
func (c *checker) egressListeners(listeners []*networking.IstioEgressListener) {
	catchAll := -1
	seen := map[address]int{}
	for i, l := range listeners {
		path := at("spec.egress", i)
		if l.Port == nil && l.Bind == "" {
			if catchAll >= 0 {
				c.errorf(path, "spec.egress[%d] is without port too, and there can be only one: put their hosts together", catchAll)
			} else if i < len(listeners)-1 {
				c.errorf(path, "a listener without port takes what the others leave, and must be the last: move it to the end of spec.egress")
			}
			catchAll = i
			continue
		}
		a := address{l.Bind, l.Port.GetNumber()}
		switch {
		case strings.HasPrefix(l.Bind, unixPrefix):
			a.port = 0 // a socket has none
		case everywhere(l.Bind):
			a.bind = ""
		}
		if j, twice := seen[a]; twice {
			c.errorf(path, "spec.egress[%d] has the same bind and port: put their hosts together", j)
		}
		seen[a] = i
	}
}

// noHosts leaves out all hosts. "~" begins hosts that are left out, of the namespace that follows or
// of all. Source: istio.io, IstioEgressListener.hosts.
const noHosts = "~/*"

// egress checks one outbound listener.
func (c *checker) egress(path string, l *networking.IstioEgressListener) {
	unix := strings.HasPrefix(l.Bind, unixPrefix)
	if unix && l.CaptureMode == networking.CaptureMode_IPTABLES {
		c.errorf(path+".captureMode", "connections to a socket cannot be redirected: use NONE or DEFAULT")
	}
	switch {
	case l.Port == nil && l.Bind != "":
		c.errorf(path+".port", "a listener with bind needs a port")
	case l.Port == nil && l.CaptureMode == networking.CaptureMode_NONE:
		c.errorf(path+".port", "a listener that takes no redirected connections needs a port, and an address in bind")
	case l.Port != nil:
		if !unix {
			c.sidecarPort(path+".port", l.Bind, l.Port)
		}
		if unix || !strings.EqualFold(l.Port.Protocol, httpProxy) {
			c.why(path+".port.protocol", checkSidecarProtocol(l.Port.Protocol))
		}
	}
	if len(l.Hosts) == 0 {
		c.errorf(path+".hosts", "the hosts are missing: write namespace/host, such as ./* or */*")
	}
	if len(l.Hosts) > 1 && slices.Contains(l.Hosts, noHosts) {
		c.errorf(path+".hosts", "%s leaves out every host, and with it the others: remove it, or them", noHosts)
	} else if !slices.ContainsFunc(l.Hosts, func(h string) bool { return h == noHosts || !strings.HasPrefix(h, "~") }) {
		c.warnf(path+".hosts", "nothing is imported, so there is nothing to leave out: write */* too, or %s alone", noHosts)
	}
}

// checkImportedHost is the rule for hosts that a listener imports.
func checkImportedHost(text string) string {
	namespace, host, found := strings.Cut(text, "/")
	namespace, excluded := strings.CutPrefix(namespace, "~")
	switch {
	case !found:
		return fmt.Sprintf("%s names no namespace: write namespace/host, such as ./%[2]s or */%[2]s", quote(text),
			shorten(text))
	case namespace == "" && excluded:
	case namespace != "*" && namespace != "." && checkDNSLabel(namespace) != "":
		return checkDNSLabel(namespace)
	}
	return checkWildcardHost(host)
}

// checkBind is the rule for an address or a socket to listen to.
func checkBind(bind string) string {
	if name, unix := strings.CutPrefix(bind, unixPrefix); unix {
		return checkUnix(name)
	}
	return checkAddress(bind)
}

// egressProxy checks where connections to unknown destinations go.
func (c *checker) egressProxy(path string, p *networking.OutboundTrafficPolicy) {
	if p.EgressProxy == nil {
		return
	}
	if p.Mode != networking.OutboundTrafficPolicy_ALLOW_ANY {
		c.errorf(path+".egressProxy",
			"connections to unknown destinations are refused with REGISTRY_ONLY (the default): set mode ALLOW_ANY, or remove egressProxy")
	}
	if p.EgressProxy.Port == nil {
		c.errorf(path+".egressProxy.port", "the port is missing")
	}
}
