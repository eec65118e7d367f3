package xds_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// library has one type of configuration, of which there is nothing, for everybody.
type library struct{}

const bookType = "networking.istio.io/v1/ServiceEntry"

func (library) Ready() bool { return true }

func (library) Set(typeURL string) (resource.Set, bool) { return resource.Set{}, typeURL == bookType }

func (library) May(spiffe.ID) error { return nil }

// Who reads configuration and is revoked is written down as one who may not any more, as he had proven to be.
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
		if e.Action != audit.ConfigRead || e.Actor != "spiffe://cluster.local/ns/shop/sa/web" || e.Outcome != want || e.Details["serial"] != fmt.Sprintf("%x", cert.Leaf.SerialNumber) {
			t.Errorf("recorded is %+v, want %s", e, want)
		}
		if want == audit.Refused && !strings.Contains(e.Reason, "it is revoked") {
			t.Errorf("the reason is %q", e.Reason)
		}
	}
}
