package agent

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// heardProbe is a probe as a proxy hands it on.
type heardProbe struct{ probe *networking.ReadinessProbe }

// hearing makes a proxy follow the probe of its group, and hands on what it hears.
func hearing(told chan heardProbe, trouble error) func(*proxyConfig) {
	return func(pc *proxyConfig) {
		pc.Group = "web"
		pc.SetProbe = func(p *networking.ReadinessProbe) error {
			told <- heardProbe{p}
			return trouble
		}
	}
}

// tellsProbe answers the first request for the probe with a body; nil: with nothing.
func tellsProbe(body []byte) func(*discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryResponse {
	return func(r *discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryResponse {
		if r.GetTypeUrl() != probeTypeURL || r.GetResponseNonce() != "" {
			return nil
		}
		m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: probeTypeURL, Nonce: "n1"}
		if body != nil {
			m.Resources = []*discoveryv3.Resource{{Name: "readiness-probe", Version: "1", Resource: &anypb.Any{TypeUrl: probeTypeURL, Value: body}}}
		}
		return m
	}
}

// The probe of the group is asked for on each stream, handed on as it is told, and acknowledged when it was taken; one that is
// refused, or cannot be understood, is refused with the reason. A control plane that does not know of probes tells none.
func TestUpstreamProbe(t *testing.T) {
	t.Parallel()
	probe := httpProbe("", "/ready")
	body, err := proto.Marshal(probe)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		body    []byte
		trouble error
		want    *networking.ReadinessProbe
		silent  bool // nothing is handed on
		bad     bool // it is refused
	}{
		{name: "a probe", body: body, want: probe},
		{name: "none", body: []byte{}, want: &networking.ReadinessProbe{}},
		{name: "a control plane that does not know", body: nil, want: nil},
		{name: "one that is refused", body: body, trouble: errors.New("no"), want: probe, bad: true},
		{name: "nonsense", body: []byte{0xff}, silent: true, bad: true},
	} {
		c := startRecorder(t, tellsProbe(tc.body))
		told := make(chan heardProbe, 8)
		startProxy(t, hearing(told, tc.trouble), c.address)
		asks := c.count(t, probeTypeURL, 2)
		if len(asks[0].GetInitialResourceVersions()) > 0 || asks[1].GetResponseNonce() != "n1" || (asks[1].GetErrorDetail() != nil) != tc.bad {
			t.Errorf("%s: asked %v, answered %v", tc.name, asks[0], asks[1])
		}
		switch {
		case tc.silent != (len(told) == 0):
			t.Errorf("%s: told %d times", tc.name, len(told))
		case !tc.silent:
			if got := <-told; (got.probe == nil) != (tc.want == nil) || !proto.Equal(got.probe, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.name, got.probe, tc.want)
			}
		}
		c.cut()
		c.count(t, probeTypeURL, 3)
	}
}

// A probe that was told holds when another control plane does not know of probes, and after a restart without any; one that
// was refused is not kept, nor is one of another group.
func TestProbeIsKept(t *testing.T) {
	t.Parallel()
	body, err := proto.Marshal(httpProbe("", "/ready"))
	if err != nil {
		t.Fatal(err)
	}
	nobody := func(pc *proxyConfig) {
		pc.Dial = func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody") }
	}
	for _, tc := range []struct {
		name    string
		body    []byte
		trouble error
		group   string
		want    int // how many are told after the restart
	}{
		{"a probe", body, nil, "web", 1},
		{"none", []byte{}, nil, "web", 1},
		{"refused", body, errors.New("no"), "web", 0},
		{"of another group", body, nil, "api", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir, first := filepath.Join(stateFolder(t), "copy"), make(chan heardProbe, 8)
			c := startRecorder(t, tellsProbe(tc.body))
			p := startProxy(t, func(pc *proxyConfig) { hearing(first, tc.trouble)(pc); withCopy(dir)(pc) }, c.address)
			c.count(t, probeTypeURL, 2)
			becomesTrue(t, func() string { return connectedTo(p, c.address) })
			c.answerWith(tellsProbe(nil)) // an older replica takes over
			<-first
			c.cut()
			c.count(t, probeTypeURL, 4)
			if len(first) > 0 {
				t.Errorf("who does not know takes it back: %v", <-first)
			}
			p.stop()

			again := make(chan heardProbe, 8)
			q := startProxy(t, func(pc *proxyConfig) {
				hearing(again, nil)(pc)
				withCopy(dir)(pc)
				nobody(pc)
				pc.Group = tc.group
			}, c.address)
			if q.Status().CopyRefused != "" {
				t.Errorf("the copy is refused: %s", q.Status().CopyRefused)
			}
			if len(again) != tc.want {
				t.Fatalf("%d are told after a restart, want %d", len(again), tc.want)
			}
			if tc.want > 0 {
				if got := <-again; proto.Size(got.probe) != len(tc.body) {
					t.Errorf("after a restart %v", got.probe)
				}
			}
			q.stop()
		})
	}
}

// A control plane that never answers for the type tells no probe either, a while after it was asked.
func TestSilentAboutProbes(t *testing.T) {
	t.Parallel()
	told := make(chan heardProbe, 8)
	c := proxyConfig{Node: testNode(t), Addresses: []string{"127.0.62.1:1"}, Log: testlog.New(t),
		Dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody") }}
	hearing(told, nil)(&c)
	p, err := newProxy(c)
	if err != nil {
		t.Fatal(err)
	}
	l := &upstreamLink{address: "127.0.62.1:1", up: p.relay.connect()}
	if err := p.question(l); err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || (<-told).probe != nil {
		t.Error("it waits for ever")
	}
	if err := p.takeProbe(nil); err != nil {
		t.Fatal(err)
	}
	<-told
	if err := p.question(l); err != nil || len(told) > 0 {
		t.Errorf("what was told is taken back: %d, %v", len(told), err)
	}
}
