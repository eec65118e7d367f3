package probe

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Settings limit how the application is checked on this machine.
type Settings struct {
	// AllowGroupExec lets the group's probe run a command on this machine, as the agent's user:
	// everyone who can write the group can then run programs as that user.
	AllowGroupExec bool `yaml:"allowGroupExec"`
	// CheckPorts makes the agent check each second whether the application listens on the
	// workload's ports. If the group has no probe, the result is the application's health.
	CheckPorts bool `yaml:"checkPorts"`
}

// check is how the application is checked, as configured by the control plane.
type check struct {
	probe   *networking.ReadinessProbe // of the WorkloadGroup, if allowed; may be nil
	ports   []checkedPort              // the ports that the application has to listen on
	sent    *networking.ReadinessProbe // as the control plane sent it; may be nil
	refused error                      // why the probe is refused; nil: it is not
}

// read converts what the control plane sent, which may be nil. A probe is refused if the settings
// do not allow it on this machine, or if the agent does not know its method.
func (c *Config) read(p *networking.ReadinessProbe) check {
	out := check{sent: p}
	if p == nil {
		return out
	}
	p = out.readPorts(p)
	if proto.Size(p) == 0 {
		return out
	}
	if out.refused = c.allows(p); out.refused == nil {
		out.probe = p
	}
	return out
}

// readPorts reads the field that Istio's API does not have into c. It returns a copy of the probe
// without it.
func (c *check) readPorts(p *networking.ReadinessProbe) *networking.ReadinessProbe {
	p = proto.CloneOf(p)
	m := p.ProtoReflect()
	var rest []byte
	for raw := m.GetUnknown(); len(raw) > 0; {
		number, typ, size := protowire.ConsumeField(raw)
		field := raw[:size] // valid, because the message was decoded
		raw = raw[size:]
		if typ != protowire.BytesType || number != resource.ProbePortsField {
			rest = append(rest, field...)
			continue
		}
		_, _, tag := protowire.ConsumeTag(field)
		value, _ := protowire.ConsumeBytes(field[tag:])
		if one, ok := readCheckedPort(string(value)); ok {
			c.ports = append(c.ports, one)
		}
	}
	m.SetUnknown(rest)
	return p
}

// allows returns why a group's probe is refused; nil if it is allowed.
func (c *Config) allows(p *networking.ReadinessProbe) error {
	switch p.GetHealthCheckMethod().(type) {
	case *networking.ReadinessProbe_HttpGet:
		return c.allowsHost(p.GetHttpGet().GetHost())
	case *networking.ReadinessProbe_TcpSocket:
		return c.allowsHost(p.GetTcpSocket().GetHost())
	case *networking.ReadinessProbe_Grpc:
		return nil
	case *networking.ReadinessProbe_Exec:
		if c.AllowGroupExec && len(p.GetExec().GetCommand()) > 0 {
			return nil
		}
		return probeRefused("it runs a command, and this agent's settings do not let a group run commands on this " +
			"machine; set probe.allowGroupExec here if whoever writes the group may, or use httpGet, tcpSocket or grpc in " +
			"the group")
	}
	return probeRefused("this agent does not know its method; use httpGet, tcpSocket or grpc in the group, " +
		"or a newer agent")
}

func probeRefused(why string) error {
	return errors.New("the probe of the WorkloadGroup is not used: " + why)
}

// allowsHost returns why a group's probe may not connect to a host; nil if it may. An empty host is
// the workload's own address.
func (c *Config) allowsHost(host string) error {
	if slices.Contains([]string{"", "127.0.0.1", "::1", "localhost"}, host) ||
		slices.Contains(c.Addresses, host) {
		return nil
	}
	return probeRefused(fmt.Sprintf("it connects to the host %q, which is not this workload; "+
		"leave host out in the group (a Host header may go into httpHeaders)", host))
}

// schedule is when a check runs. up and down are how many successes and failures in a row change
// the health.
type schedule struct {
	delay, period, timeout time.Duration
	up, down               int
}

// schedule returns the schedule of the group's probe, with Istio's defaults. Without a probe the
// ports are checked each second, and one result changes the health.
func (c *check) schedule() schedule {
	if c.probe == nil {
		return schedule{period: time.Second, timeout: time.Second, up: 1, down: 1}
	}
	positive := func(value, fallback int32) int {
		if value <= 0 {
			value = fallback
		}
		return int(value)
	}
	seconds := func(value, fallback int32) time.Duration {
		return time.Duration(positive(value, fallback)) * time.Second
	}
	p := c.probe
	return schedule{delay: seconds(p.GetInitialDelaySeconds(), 0), period: seconds(p.GetPeriodSeconds(), 10),
		timeout: seconds(p.GetTimeoutSeconds(), 1),
		up:      positive(p.GetSuccessThreshold(), 1), down: positive(p.GetFailureThreshold(), 3)}
}
