package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// groupNews is what the control plane says of the probe of the workload's group.
type groupNews struct {
	probe   Probe         // without a way: the group has none
	ports   []checkedPort // of the workload
	unit    string        // of systemd that has to be active; empty: none
	key     string        // equal for equal probes
	refused *probeRefusal // why the probe is not used; nil: it is
}

// groupProbeRefused begins the reason why a workload is not among the endpoints when that is its group's probe.
const groupProbeRefused = "the probe of the WorkloadGroup is not used: "

// probeRefusal is why a group's probe is not used.
type probeRefusal struct{ why, todo string }

func (r *probeRefusal) Error() string { return groupProbeRefused + r.why + "; " + r.todo }

// groupProbe makes a group's probe one of this agent. An empty one, or nil, is none. It is refused where it would do what the
// settings do not let configuration of the mesh do on this machine, and where it cannot be understood.
func groupProbe(p *networking.ReadinessProbe, s *Settings) groupNews {
	if p == nil {
		return groupNews{}
	}
	key := encodedProbe(p)
	n := takeChecks(&p)
	if n.key = key; proto.Size(p) == 0 {
		return n
	}
	out := Probe{
		InitialDelay: time.Duration(p.InitialDelaySeconds) * time.Second, Period: time.Duration(p.PeriodSeconds) * time.Second,
		Timeout: time.Duration(p.TimeoutSeconds) * time.Second, SuccessThreshold: int(p.SuccessThreshold), FailureThreshold: int(p.FailureThreshold),
	}
	n.refused = out.takeWay(p, s)
	if n.refused == nil {
		n.refused = checkGroupProbe(&out)
	}
	if n.refused == nil {
		n.probe = out
	}
	return n
}

// takeChecks takes the fields of Ashore's own out of a probe, which becomes a copy without them.
func takeChecks(p **networking.ReadinessProbe) (n groupNews) {
	*p = proto.CloneOf(*p)
	m := (*p).ProtoReflect()
	var rest []byte
	for raw := m.GetUnknown(); len(raw) > 0; {
		number, typ, size := protowire.ConsumeField(raw)
		field := raw[:size] // of a message that was decoded
		raw = raw[size:]
		if typ != protowire.BytesType || number != resource.ProbePortsField && number != resource.ProbeUnitField {
			rest = append(rest, field...)
			continue
		}
		_, _, tag := protowire.ConsumeTag(field)
		value, _ := protowire.ConsumeBytes(field[tag:])
		if number == resource.ProbeUnitField {
			n.unit = string(value)
		} else if one, ok := readCheckedPort(string(value)); ok {
			n.ports = append(n.ports, one)
		}
	}
	m.SetUnknown(rest)
	return n
}

// encodedProbe is equal for equal probes.
func encodedProbe(p *networking.ReadinessProbe) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil {
		return p.String() // what cannot be encoded was decoded just now: it cannot be
	}
	return string(b)
}

// takeWay takes over how a group's probe asks. It returns why not, nil when it did.
func (out *Probe) takeWay(p *networking.ReadinessProbe, s *Settings) *probeRefusal {
	switch m := p.GetHealthCheckMethod().(type) {
	case *networking.ReadinessProbe_HttpGet:
		h := m.HttpGet
		out.HTTPGet = &ProbeHTTP{Path: h.GetPath(), Port: int(h.GetPort()), Host: h.GetHost(), Scheme: h.GetScheme()}
		for _, one := range h.GetHttpHeaders() {
			out.HTTPGet.Headers = append(out.HTTPGet.Headers, ProbeHeader{one.GetName(), one.GetValue()})
		}
		return s.mayAsk(h.GetHost())
	case *networking.ReadinessProbe_TcpSocket:
		out.TCPSocket = &ProbeTCP{Port: int(m.TcpSocket.GetPort()), Host: m.TcpSocket.GetHost()}
		return s.mayAsk(m.TcpSocket.GetHost())
	case *networking.ReadinessProbe_Grpc:
		out.GRPC = &ProbeGRPC{Port: int(m.Grpc.GetPort()), Service: m.Grpc.GetService()}
		return nil
	case *networking.ReadinessProbe_Exec:
		out.Exec = &ProbeExec{Command: m.Exec.GetCommand()}
		if s.Probe.AllowGroupExec {
			return nil
		}
		return &probeRefusal{"it runs a command, and this agent's settings do not let a group run commands on this machine",
			"set probe.allowGroupExec (--allow-group-exec) here if whoever writes the group may, or a probe of this agent's own, or httpGet, tcpSocket or grpc in the group"}
	}
	return &probeRefusal{"it asks in a way that this agent does not know", "use httpGet, tcpSocket or grpc in the group, or a newer agent"}
}

// mayAsk says why a group's probe may not ask a host; nil when it may. Empty is the workload's own address.
func (s *Settings) mayAsk(host string) *probeRefusal {
	same := func(other string) bool { return sameHost(host, other) }
	if host == "" || slices.ContainsFunc([]string{"127.0.0.1", "::1", "localhost"}, same) ||
		slices.ContainsFunc(s.Workload.Addresses, same) || slices.ContainsFunc(s.Probe.AllowGroupHosts, same) {
		return nil
	}
	return &probeRefusal{fmt.Sprintf("it asks the host %q, which is not this workload", host),
		"leave host out in the group (a Host header may go into httpHeaders), or add it to probe.allowGroupHosts (--allow-group-hosts) here"}
}

// sameHost says whether two hosts are written for the same one. Letters beyond ASCII are never the same: "ſ" is no "s" in DNS.
func sameHost(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX != nil || errY != nil {
		beyond := func(r rune) bool { return r >= utf8.RuneSelf }
		return errX != nil && errY != nil && strings.EqualFold(a, b) && !strings.ContainsFunc(a+b, beyond)
	}
	return x.Unmap() == y.Unmap()
}

// checkGroupProbe says what is wrong with a group's probe; nil: nothing. The control plane checks it before: this is for others.
func checkGroupProbe(p *Probe) *probeRefusal {
	c := &checker{}
	if c.probe(p); len(c.errs) == 0 {
		return nil
	}
	return &probeRefusal{oneLine(c.errs[0].Error()), "mend it in the group"}
}
