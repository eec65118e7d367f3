package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// listenOn listens until the test ends.
func listenOn(t *testing.T, network, address string) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestPortCheck(t *testing.T) {
	t.Parallel()
	const own = "127.0.41.200"
	for _, tt := range []struct {
		name     string
		none     bool
		listen   []string // addresses without the port
		envoy    []string // where Envoy listens, of these
		envoyErr error
		want     registry.PortState
		problem  string
	}{
		{name: "served", listen: []string{own}},
		{name: "stopped", want: registry.PortClosed, problem: "connection refused"},
		{name: "loopback is not enough where connections are intercepted", listen: []string{"127.0.0.1"},
			want: registry.PortClosed, problem: "connection refused"},
		{name: "without interception, served", none: true, listen: []string{own}},
		{name: "without interception, everywhere", none: true, listen: []string{own, "127.0.0.1"}},
		{name: "without interception, stopped", none: true, want: registry.PortClosed, problem: "nothing listens at"},
		{name: "loopback", none: true, listen: []string{"127.0.0.1"}, want: registry.PortLoopback,
			problem: "envoy does not listen"},
		{name: "behind Envoy", none: true, listen: []string{own, "127.0.0.1"}, envoy: []string{own},
			want: registry.PortListener},
		{name: "behind Envoy, stopped", none: true, listen: []string{own}, envoy: []string{own},
			want: registry.PortClosed, problem: "nothing listens at"},
		{name: "Envoy alone, for outgoing connections", none: true, listen: []string{"127.0.0.1"},
			envoy: []string{"127.0.0.1"},
			want:  registry.PortClosed, problem: "for outgoing connections"},
		{name: "Envoy does not answer", none: true, listen: []string{own}, envoyErr: errors.New("no"),
			problem: "ask Envoy for its listeners: no"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			port := testport.Free(t)
			at := func(ip string) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }
			for _, ip := range tt.listen {
				listenOn(t, "tcp", at(ip))
			}
			c := portChecker{own: netip.MustParseAddr(own)}
			if tt.none {
				c.listens = func(context.Context) (map[string]bool, error) {
					out := map[string]bool{}
					for _, ip := range tt.envoy {
						out[at(ip)] = true
					}
					return out, tt.envoyErr
				}
			}
			got, err := c.check(t.Context(), []checkedPort{{port: uint16(port)}})
			if state := got.At(uint32(port)); state != tt.want || (err == nil) != (tt.problem == "") || err != nil &&
				!strings.Contains(err.Error(), tt.problem) {
				t.Errorf("got %q, %v; want %q, %q", state, err, tt.want, tt.problem)
			}
		})
	}
}

// A workload is well while one of its ports is served.
func TestPortCheckOfSeveral(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "app.sock")
	listenOn(t, "unix", socket)
	closed, other := testport.Free(t), testport.Address(t)
	c := portChecker{own: netip.MustParseAddr("127.0.41.201")}
	ports := []checkedPort{{port: uint16(closed)}, {port: 2, network: "unix", address: socket},
		{port: 3, network: "tcp", address: other}}
	got, err := c.check(t.Context(), ports)
	if want := registry.PortStates("3=closed," + strconv.Itoa(closed) + "=closed"); got != want || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if got, err := c.check(t.Context(), nil); got != "" || err != nil {
		t.Errorf("without ports: %q, %v", got, err)
	}
}

// Ports may come with the group's probe. Any other unknown field is refused.
func TestChecksOfGroup(t *testing.T) {
	t.Parallel()
	s := grouped()
	own := func(p *networking.ReadinessProbe, number protowire.Number, text string) {
		m := p.ProtoReflect()
		m.SetUnknown(protowire.AppendString(protowire.AppendTag(m.GetUnknown(), number, protowire.BytesType), text))
	}
	for name, probe := range map[string]*networking.ReadinessProbe{"none": {}, "a probe": httpProbe("", "/ready")} {
		for _, text := range []string{"8080", "8081=127.0.0.1:9090", "8082=unix:///run/app.sock", "x", "0",
			"8083=name:1"} {
			own(probe, resource.ProbePortsField, text)
		}
		n := s.read(proto.CloneOf(probe))
		if n.refused != nil || (n.probe != nil) != (name == "a probe") || len(n.ports) != 3 {
			t.Errorf("%s: got %+v", name, n)
		}
		own(probe, resource.ProbePortsField, "9999")
		if again := s.read(probe); proto.Equal(again.sent, n.sent) {
			t.Errorf("%s: with another port it is the same check", name)
		}
	}
	unknown := &networking.ReadinessProbe{}
	own(unknown, 99, "x")
	if n := s.read(unknown); n.refused == nil {
		t.Error("a probe with an unknown method is accepted")
	}
}
