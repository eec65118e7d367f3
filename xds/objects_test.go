package xds_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// library has one type of configuration, of which there is nothing, for everybody; or for nobody.
type library struct {
	why  error         // why nobody may read
	sets *atomic.Int32 // counts how often it was looked what there is; nil: that is not counted
}

const bookType = "networking.istio.io/v1/ServiceEntry"

func (library) Knows(typeURL string) bool { return typeURL == bookType }

func (l library) Set(typeURL string) (resource.Set, bool) {
	if l.sets != nil {
		l.sets.Add(1)
	}
	return resource.Set{}, l.Knows(typeURL)
}

func (l library) May(spiffe.ID) error { return l.why }

// Nothing is made of configuration for who may not read it: of services of registries it costs much.
func TestNothingIsMadeForStrangers(t *testing.T) {
	t.Parallel()
	sets := &atomic.Int32{}
	p := newPlane(t, nil, testport.Address(t),
		func(c *xds.Config) { c.Objects = library{errors.New("you may not"), sets} })
	p.publish(serving("a", 1)...)
	l := call(t, p, nil)
	l.ask(node(t, map[string]any{}), bookType)
	if _, err := l.hears(bookType); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream ended with %v", err)
	}
	if n := sets.Load(); n != 0 {
		t.Errorf("it was made %d times", n)
	}
}

// Who reads configuration and is revoked is written down as one who may not any more, as he had
// proven to be.
func TestReaderRevoked(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	events := make(chan audit.Event, 10)
	p := newSecurePlane(t, a, func(c *xds.Config) {
		c.Objects, c.Registerer = library{}, prometheus.NewRegistry()
		c.Audit = func(e audit.Event) { events <- e }
	})
	cert := a.web()
	l := call(t, p, cert)
	l.ask(node(t, map[string]any{}), bookType)
	if _, err := l.hears(bookType); err != nil {
		t.Fatal(err)
	}
	a.revoke("web")
	p.server.Recheck()
	if code := l.ended(); code != codes.Unauthenticated {
		t.Errorf("the stream ended with %v", code)
	}
	for _, want := range []string{audit.OK, audit.Refused} {
		var e audit.Event
		select {
		case e = <-events: // it was written down before the stream ended
		default:
		}
		if e.Action != audit.ConfigRead || e.Actor != "spiffe://cluster.local/ns/shop/sa/web" || e.Outcome != want ||
			e.Details["serial"] != fmt.Sprintf("%x", cert.Leaf.SerialNumber.Bytes()) {
			t.Errorf("recorded is %+v, want %s", e, want)
		}
		if want == audit.Refused && !strings.Contains(e.Reason, "it is revoked") {
			t.Errorf("the reason is %q", e.Reason)
		}
	}
}

// Proxies that come before they can be served are counted, and not logged: each comes again every
// second or so, for as long as a source is waited for.
func TestEarlyProxiesAreNotLogged(t *testing.T) {
	t.Parallel()
	const attempts = 20
	lines, metrics := &testlog.Text{}, prometheus.NewRegistry()
	p := newPlane(t, nil, testport.Address(t), func(c *xds.Config) {
		c.Log, c.Registerer = hclog.New(&hclog.LoggerOptions{Output: lines, Level: hclog.Info}), metrics
	})
	client := dial(t, p)
	for range attempts {
		st, err := client.DeltaAggregatedResources(t.Context())
		if err == nil {
			_ = st.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.ClusterType,
				Node: node(t, map[string]any{})})
			_, err = st.Recv()
		}
		if status.Code(err) != codes.Unavailable {
			t.Fatalf("a proxy is answered %v", err)
		}
	}
	if got := lines.String(); got != "" {
		t.Errorf("logged is %q", got)
	}
	if got := refused(t, metrics, "not ready"); got != attempts {
		t.Errorf("counted are %v of %d", got, attempts)
	}
}

// refused is how many streams were refused for a reason.
func refused(t *testing.T, from prometheus.Gatherer, reason string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "pilot_xds_refused_streams" && m.Label[0].GetValue() == reason {
				return m.Counter.GetValue()
			}
		}
	}
	return 0
}
