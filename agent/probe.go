package agent

import (
	"math"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/registry"
)

// Probe says how the agent finds out whether the application is well. At most one of the ways is set; without one the probe of
// the workload's group says it, and where that has none either the application counts as well. Names, meanings and defaults are
// those of Istio's ReadinessProbe.
type Probe struct {
	// HTTPGet is well when a GET is answered with 200 to 399.
	HTTPGet *ProbeHTTP `yaml:"httpGet"`
	// TCPSocket is well when a connection can be opened.
	TCPSocket *ProbeTCP `yaml:"tcpSocket"`
	// Exec is well when the command ends with 0.
	Exec *ProbeExec `yaml:"exec"`
	// GRPC is well when the application says so by gRPC's health protocol.
	GRPC *ProbeGRPC `yaml:"grpc"`
	// InitialDelay is before the first probe.
	InitialDelay time.Duration `yaml:"initialDelay"`
	// Period is between two probes. Zero means 10s.
	Period time.Duration `yaml:"period"`
	// Timeout bounds one probe. Zero means 1s.
	Timeout time.Duration `yaml:"timeout"`
	// SuccessThreshold is how many in a row make an application well that was not. Zero means 1.
	SuccessThreshold int `yaml:"successThreshold"`
	// FailureThreshold is how many in a row make it unwell. Zero means 3.
	FailureThreshold int `yaml:"failureThreshold"`

	// AllowGroupExec lets the group's probe run a command on this machine, as the agent's user: whoever may write the group
	// can then do here what that user can.
	AllowGroupExec bool `yaml:"allowGroupExec"`
	// AllowGroupHosts are the hosts that the group's probe may ask beside the workload's own addresses, 127.0.0.1, ::1 and
	// localhost. IP addresses and names, as the group writes them.
	AllowGroupHosts []string `yaml:"allowGroupHosts"`
	// CheckPorts has the agent see each second whether the workload's ports are served, unless these settings have a probe.
	// Where the group has no probe either, that is the application's health.
	CheckPorts bool `yaml:"checkPorts"`
}

// ProbeHTTP is a GET.
type ProbeHTTP struct {
	// Path is asked for. Empty: "/".
	Path string `yaml:"path"`
	Port int    `yaml:"port"`
	// Host is connected to and named. Empty: the workload's first address.
	Host string `yaml:"host"`
	// Scheme is "http" or "https", whose certificate is not looked at. Empty: "http".
	Scheme string `yaml:"scheme"`
	// Headers are sent; one called Host is the name that is asked for.
	Headers []ProbeHeader `yaml:"httpHeaders,omitempty"`
}

// ProbeHeader is a header of a request.
type ProbeHeader struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}

// ProbeTCP is a connection.
type ProbeTCP struct {
	Port int `yaml:"port"`
	// Host is connected to. Empty: the workload's first address.
	Host string `yaml:"host"`
}

// ProbeExec is a command with its arguments; it is not given to a shell.
type ProbeExec struct {
	Command []string `yaml:"command"`
}

// ProbeGRPC is a call of grpc.health.v1.Health/Check on the workload's first address, without TLS.
type ProbeGRPC struct {
	Port int `yaml:"port"`
	// Service is asked about. Empty: the server as a whole.
	Service string `yaml:"service"`
}

// Health is how the application is.
type Health struct {
	Healthy bool
	// Reason is why not; empty when it is well.
	Reason string
	// Ports are the states of the workload's ports.
	Ports registry.PortStates
}

// set says whether there is something to do.
func (p *Probe) set() bool {
	return p.HTTPGet != nil || p.TCPSocket != nil || p.Exec != nil || p.GRPC != nil
}

// withDefaults fills in what is zero.
func (p Probe) withDefaults() Probe {
	for _, d := range []struct {
		at       *time.Duration
		fallback time.Duration
	}{{&p.Period, 10 * time.Second}, {&p.Timeout, time.Second}} {
		if *d.at == 0 {
			*d.at = d.fallback
		}
	}
	p.SuccessThreshold = max(p.SuccessThreshold, 1)
	if p.FailureThreshold == 0 {
		p.FailureThreshold = 3
	}
	return p
}

// config is the probe in Istio's ProxyConfig, nil without one: that it exists tells the control plane to wait for the
// first report before it sends traffic.
func (p *Probe) config() map[string]any {
	if !p.set() {
		return nil
	}
	d := p.withDefaults()
	out := map[string]any{
		"initialDelaySeconds": int(d.InitialDelay.Seconds()), "periodSeconds": int(max(d.Period.Seconds(), 1)), "timeoutSeconds": int(max(d.Timeout.Seconds(), 1)),
		"successThreshold": d.SuccessThreshold, "failureThreshold": d.FailureThreshold,
	}
	switch {
	case p.HTTPGet != nil:
		out["httpGet"] = map[string]any{"path": p.HTTPGet.Path, "port": p.HTTPGet.Port, "host": p.HTTPGet.Host, "scheme": p.HTTPGet.Scheme}
	case p.TCPSocket != nil:
		out["tcpSocket"] = map[string]any{"port": p.TCPSocket.Port, "host": p.TCPSocket.Host}
	case p.GRPC != nil:
		out["grpc"] = map[string]any{"port": p.GRPC.Port, "service": p.GRPC.Service}
	default:
		var words []any
		for _, w := range p.Exec.Command {
			words = append(words, w)
		}
		out["exec"] = map[string]any{"command": words}
	}
	return out
}

// readinessProbe is what the control plane is told of probes, nil: there are none. A registered workload has one in any case,
// that of its proxy: it is no endpoint before the first report.
func (s *Settings) readinessProbe() map[string]any {
	p := s.Probe
	if !p.set() && s.Workload.Group != "" && !s.Dev {
		p.HTTPGet = &ProbeHTTP{Path: "/healthz/ready", Port: s.Ports.Status}
	}
	return p.config()
}

// probe checks the settings.
func (c *checker) probe(p *Probe) {
	ways := 0
	if h := p.HTTPGet; h != nil {
		ways++
		c.httpProbe(h)
	}
	if p.TCPSocket != nil {
		ways++
		c.between("probe.tcpSocket.port", p.TCPSocket.Port, 1, 65535)
	}
	if p.GRPC != nil {
		ways++
		c.between("probe.grpc.port", p.GRPC.Port, 1, 65535)
	}
	if p.Exec != nil {
		ways++
		if len(p.Exec.Command) == 0 || p.Exec.Command[0] == "" {
			c.fail("probe.exec.command", "not set; give the program and its arguments")
		}
	}
	if ways > 1 {
		c.fail("probe", "several ways are set; want one of httpGet, tcpSocket, grpc and exec")
	}
	for name, d := range map[string]time.Duration{"probe.initialDelay": p.InitialDelay, "probe.period": p.Period, "probe.timeout": p.Timeout} {
		if d < 0 {
			c.fail(name, "%v is less than no time; want 0 or more", d)
		}
	}
	c.between("probe.successThreshold", p.SuccessThreshold, 0, math.MaxInt32)
	c.between("probe.failureThreshold", p.FailureThreshold, 0, math.MaxInt32)
	for _, h := range p.AllowGroupHosts {
		if _, err := netip.ParseAddr(h); err != nil && !dnsname.Valid(strings.ToLower(h)) {
			c.fail("probe.allowGroupHosts", "%q is neither an IP address nor the name of a host", h)
		}
	}
}

// httpProbe checks a GET.
func (c *checker) httpProbe(h *ProbeHTTP) {
	c.between("probe.httpGet.port", h.Port, 1, 65535)
	c.oneOf("probe.httpGet.scheme", strings.ToLower(h.Scheme), "", "http", "https")
	if h.Path != "" && !strings.HasPrefix(h.Path, "/") {
		c.fail("probe.httpGet.path", "%q is not a path; want one that begins with /", h.Path)
	} else if _, err := url.ParseRequestURI(h.Path); h.Path != "" && err != nil {
		c.fail("probe.httpGet.path", "%q is not the path of a URL", h.Path)
	}
	for _, one := range h.Headers {
		if !one.valid() {
			c.fail("probe.httpGet.httpHeaders", "%q: %q is not a header", one.Name, one.Value)
		}
	}
}

// valid says whether it can be sent. Source: RFC 9110, 5.1 and 5.5.
func (h ProbeHeader) valid() bool {
	other := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}
	control := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
	return h.Name != "" && !strings.ContainsFunc(h.Name, other) && !strings.ContainsFunc(h.Value, control)
}
