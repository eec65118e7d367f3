package config

import (
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// validateSidecar checks what a workload's proxy listens to and what it can reach.
func validateSidecar(c *checker) {
	s := spec[*networking.Sidecar](c)
	if s.WorkloadSelector != nil {
		if len(s.WorkloadSelector.Labels) == 0 {
			c.errorf("spec.workloadSelector.labels",
				"the labels are missing: write them, or remove workloadSelector for the whole namespace")
		}
		c.labels("spec.workloadSelector.labels", s.WorkloadSelector.Labels)
	}
	if len(s.Ingress) == 0 && len(s.Egress) == 0 && s.OutboundTrafficPolicy == nil && s.InboundConnectionPool == nil {
		c.errorf("spec", "nothing is set: write egress, ingress or outboundTrafficPolicy")
	}
	c.connectionPool("spec.inboundConnectionPool", s.InboundConnectionPool)
	ports := map[uint32]int{}
	for i, l := range s.Ingress {
		path := at("spec.ingress", i)
		c.ingress(path, l)
		if n := l.Port.GetNumber(); n != 0 {
			if j, twice := ports[n]; twice {
				c.errorf(path+".port.number", "port %d is that of spec.ingress[%d] too", n, j)
			}
			ports[n] = i
		}
	}
	c.egressListeners(s.Egress)
	c.sidecarOutbound("spec.outboundTrafficPolicy", s.OutboundTrafficPolicy)
}

// ingress checks one inbound listener.
func (c *checker) ingress(path string, l *networking.IstioIngressListener) {
	if l.Port == nil {
		c.errorf(path+".port", "the port is missing: write number, name and protocol")
	} else {
		c.sidecarPort(path+".port", l.Port)
		c.proxyPort(path+".port.number", l.Bind, l.Port.Number)
		c.redirectedPort(path+".port.number", l.Bind, l.Port.Number)
	}
	if l.Bind != "" {
		c.why(path+".bind", checkAddress(l.Bind))
	}
	c.ingressTLS(path, l)
	c.connectionPool(path+".connectionPool", l.ConnectionPool)
	if l.DefaultEndpoint != "" {
		c.why(path+".defaultEndpoint", checkDefaultEndpoint(l.DefaultEndpoint))
	}
}

// ingressTLS checks how an inbound listener ends TLS of clients that are not of the mesh.
func (c *checker) ingressTLS(path string, l *networking.IstioIngressListener) {
	if l.Tls == nil {
		return
	}
	switch p := strings.ToUpper(l.GetPort().GetProtocol()); p {
	case "HTTPS", "TLS":
	default:
		c.errorf(path+".tls", "protocol %s is without TLS: choose HTTPS or TLS, or remove tls", p)
	}
	switch l.Tls.Mode {
	case networking.ServerTLSSettings_SIMPLE, networking.ServerTLSSettings_MUTUAL, networking.ServerTLSSettings_OPTIONAL_MUTUAL:
		c.serverTLS(path+".tls", l.Tls)
		if l.Tls.HttpsRedirect {
			c.errorf(path+".tls.httpsRedirect", "only a gateway can redirect to HTTPS")
		}
	default:
		c.errorf(path+".tls.mode",
			"an inbound listener ends TLS by SIMPLE, MUTUAL or OPTIONAL_MUTUAL, not by %s; the mesh's own mutual TLS is for a PeerAuthentication to ask for", l.Tls.Mode)
	}
}

// redirectedPort warns of a listener where redirected connections arrive. Only the settings of the
// mesh, and whether a proxy takes redirected connections, decide whether it is left out.
func (c *checker) redirectedPort(path, bind string, port uint32) {
	if (everywhere(bind) || bind == "127.0.0.1" || bind == "::1") &&
		(port == DefaultOutboundPort || port == DefaultInboundPort) {
		c.warnf(path, "redirected connections arrive at port %d, unless mesh.proxyListenPort and mesh.proxyInboundListenPort "+
			"are others: proxies that take such connections leave this listener out; choose another port", port)
	}
}

// httpProxy is the protocol of an egress port to which clients send requests for absolute URLs.
const httpProxy = "HTTP_PROXY"

// sidecarPort checks the port of a listener that has one. also are protocols that it may have
// beyond those of any port.
func (c *checker) sidecarPort(path string, p *networking.SidecarPort, also ...string) {
	c.port(path+".number", p.Number)
	c.why(path+".name", checkPortName(p.Name))
	if !slices.Contains(also, strings.ToUpper(p.Protocol)) {
		c.protocol(path+".protocol", p.Protocol, "UDP")
	}
}

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
		c.egress(path, l)
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

// noHosts imports nothing. Source: istio.io, IstioEgressListener.hosts.
const noHosts = "~/*"

// egress checks one outbound listener.
func (c *checker) egress(path string, l *networking.IstioEgressListener) {
	name, unix := strings.CutPrefix(l.Bind, unixPrefix)
	switch {
	case l.Bind == "":
	case unix:
		c.why(path+".bind", checkUnix(name))
		if l.CaptureMode == networking.CaptureMode_IPTABLES {
			c.errorf(path+".captureMode", "connections to a socket cannot be redirected: use NONE or DEFAULT")
		}
	default:
		c.why(path+".bind", checkAddress(l.Bind))
	}
	switch {
	case l.Port == nil && l.Bind != "":
		c.errorf(path+".port", "a listener with bind needs a port")
	case l.Port == nil && l.CaptureMode == networking.CaptureMode_NONE:
		c.errorf(path+".port", "a listener that takes no redirected connections needs a port, and an address in bind")
	case l.Port != nil && unix:
		c.why(path+".port.name", checkPortName(l.Port.Name))
		c.protocol(path+".port.protocol", l.Port.Protocol, "UDP")
	case l.Port != nil:
		c.sidecarPort(path+".port", l.Port, httpProxy)
		c.proxyPort(path+".port.number", l.Bind, l.Port.Number)
		c.redirectedPort(path+".port.number", l.Bind, l.Port.Number)
	}
	if len(l.Hosts) == 0 {
		c.errorf(path+".hosts", "the hosts are missing: write namespace/host, such as ./* or */*")
	}
	c.unique(path+".hosts", l.Hosts)
	if len(l.Hosts) > 1 && slices.Contains(l.Hosts, noHosts) {
		c.errorf(path+".hosts", "%s leaves out every host, and with it the others: remove it, or them", noHosts)
	}
	for i, h := range l.Hosts {
		c.scopedHost(at(path+".hosts", i), h, true)
	}
}

// sidecarOutbound checks where connections to unknown destinations go.
func (c *checker) sidecarOutbound(path string, p *networking.OutboundTrafficPolicy) {
	if p == nil || p.EgressProxy == nil {
		return
	}
	if p.Mode != networking.OutboundTrafficPolicy_ALLOW_ANY {
		c.errorf(path+".egressProxy",
			"connections to unknown destinations are refused with REGISTRY_ONLY (the default): set mode ALLOW_ANY, or remove egressProxy")
	}
	c.destination(path+".egressProxy", p.EgressProxy)
	if p.EgressProxy.Port == nil {
		c.errorf(path+".egressProxy.port", "the port is missing")
	}
}
