package mcp

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/mcp/legacypb"
	"github.com/ashore-mesh/ashore/push"
)

// chat is a stream whose sink is the test.
type chat struct {
	grpc.ServerStream
	ctx  context.Context
	asks chan *legacypb.RequestResources
	sent chan any
}

func (c *chat) Context() context.Context { return c.ctx }

func (c *chat) RecvMsg(into any) error {
	select {
	case r := <-c.asks:
		into := into.(*legacypb.RequestResources)
		into.SinkNode, into.Collection, into.ResponseNonce, into.ErrorDetail, into.Incremental = r.SinkNode, r.Collection, r.ResponseNonce, r.ErrorDetail, r.Incremental
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

func (c *chat) SendMsg(m any) error {
	select {
	case c.sent <- m:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// Who reads is shown with what it acknowledged, what is under way and what it refused, in its words.
func TestReadersShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := func(hosts ...string) (out push.Objects) {
			for _, h := range hosts {
				o := &config.Object{Key: config.Key{Kind: config.ServiceEntry, Namespace: "shop", Name: h}, Spec: &networking.ServiceEntry{Hosts: []string{h}}}
				out = out.With(o.Key, o)
			}
			return out
		}
		c := NewCatalog(CatalogConfig{Readers: Readers{Anybody: true}})
		c.Publish(objects("a", "b"))
		i := &identities{may: spiffe.ID{TrustDomain: "td", Namespace: "istio-system", ServiceAccount: "peer"}, until: time.Now().Add(time.Hour)}
		s, err := NewServer(ServerConfig{Catalog: c, Identify: i.identify})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		st := &chat{ctx: ctx, asks: make(chan *legacypb.RequestResources), sent: make(chan any, 9)}
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- s.establish(nil, st) }()
		synctest.Wait()
		check := func(what, want string) {
			t.Helper()
			synctest.Wait()
			all := s.Readers()
			if len(all) != 1 || !all[0].Connected.Equal(began) || !all[0].Expires.Equal(i.until) || all[0].Who != i.may {
				t.Fatalf("%s: %+v", what, all)
			}
			got := all[0].ID
			for _, c := range all[0].Collections {
				got += fmt.Sprintf(", %s %d latest %t under way %t", c.Kind, c.Resources, c.Latest, c.InFlight)
				if !c.AcknowledgedAt.IsZero() {
					got += fmt.Sprint(" acknowledged after ", c.AcknowledgedAt.Sub(began))
				}
				if c.Refusals > 0 {
					got += fmt.Sprintf(" %d refused %q", c.Refusals, c.Refusal)
				}
			}
			if got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		say := func(collection, nonce, refusal string) {
			r := &legacypb.RequestResources{SinkNode: &legacypb.SinkNode{Id: "pilot"}, Collection: collection, ResponseNonce: nonce}
			if refusal != "" {
				r.ErrorDetail = &statuspb.Status{Code: 3, Message: refusal}
			}
			st.asks <- r
		}
		check("nothing asked for", "")
		const entries = "istio/networking/v1alpha3/serviceentries"
		say(entries, "", "")
		check("asked", "pilot, ServiceEntry 2 latest false under way true")
		time.Sleep(time.Second)
		say(entries, "1", "")
		check("acknowledged", "pilot, ServiceEntry 2 latest true under way false acknowledged after 1s")
		c.Publish(objects("a", "b", "c"))
		check("changed", "pilot, ServiceEntry 3 latest false under way true acknowledged after 1s")
		say(entries, "2", "no "+strings.Repeat("!", 1000))
		check("refused", `pilot, ServiceEntry 3 latest true under way false acknowledged after 1s 1 refused "no `+strings.Repeat("!", 197)+`…"`)
		say("istio/mesh/v1alpha1/MeshConfig", "", "")
		check("of an old release", `pilot, ServiceEntry 3 latest true under way false acknowledged after 1s 1 refused "no `+strings.Repeat("!", 197)+`…",  0 latest false under way true`)
		say("istio/mesh/v1alpha1/MeshConfig", "3", "")
		c.Publish(objects("a"))
		synctest.Wait()
		say(entries, "4", "")
		check("taken", `pilot, ServiceEntry 1 latest true under way false acknowledged after 1s 1 refused "",  0 latest true under way false acknowledged after 1s`)
		end()
		<-done
		if all := s.Readers(); len(all) != 0 {
			t.Errorf("after its end: %+v", all)
		}
	})
}
