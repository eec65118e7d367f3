package mcp

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

func reviewMerger() *feed.Merger[config.Key, *config.Object] {
	keyOf := func(o *config.Object) config.Key { return o.Key }
	m := feed.NewMerger(feed.Config[config.Key, *config.Object]{KeyOf: keyOf, Settle: 2 * time.Second},
		[]feed.SourceConfig{{Name: "mcp:test"}})
	return m
}

// A: good -> mismatched name -> removed by name. Is the object gone?
func TestReviewRemoveAfterMismatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{Options: Options{Kinds: []string{"Gateway"}}})
		m := reviewMerger()
		d := s.delta()
		d.asked(gatewayV1)
		d.say(gatewayV1, set{"s/a": gateway("s/a", "a.test")})
		m.Apply(s.next(), time.Now())
		d.asked(gatewayV1 + " ack")
		d.say(gatewayV1, set{"s/a": gateway("s/other", "a.test")})
		m.Apply(s.next(), time.Now())
		d.asked(gatewayV1 + " nack")
		d.say(gatewayV1, nil, "s/a")
		b := s.next()
		t.Log(text(b))
		m.Apply(b, time.Now())
		time.Sleep(time.Hour)
		m.Expire(time.Now())
		t.Logf("%+v", m.Status())
		if v := m.Items(config.Key{Kind: config.Gateway, Namespace: "s", Name: "a"}); len(v) > 0 {
			t.Errorf("still in use: %v", v)
		}
	})
}

// B: mismatched name -> corrected. Is the problem gone?
func TestReviewProblemAfterFix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{Options: Options{Kinds: []string{"Gateway"}}})
		m := reviewMerger()
		d := s.delta()
		d.asked(gatewayV1)
		d.say(gatewayV1, set{"s/a": gateway("s/other", "a.test")})
		m.Apply(s.next(), time.Now())
		d.asked(gatewayV1 + " nack")
		d.say(gatewayV1, set{"s/a": gateway("s/a", "a.test")})
		m.Apply(s.next(), time.Now())
		if p := m.Problems(func(o *config.Object) string { return o.Key.String() }); len(p) > 0 {
			for _, x := range p {
				t.Log(x)
			}
			for _, x := range p {
				if x.IsError() {
					t.Errorf("still a problem: %v", x)
				}
			}
		}
	})
}

// C: the server moves a kind from an older version to the newest on one stream.
func TestReviewVersionMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{Options: Options{Kinds: []string{"Gateway"}}})
		m := reviewMerger()
		d := s.delta()
		d.asked(gatewayV1)
		d.say(gatewayV1, nil)
		d.asked(gatewayV1+" ack", gatewayBeta)
		d.say(gatewayBeta, set{"s/a": gateway("s/a", "a.test")})
		m.Apply(s.next(), time.Now())
		d.asked(gatewayBeta + " ack")
		d.say(gatewayV1, set{"s/a": gateway("s/a", "a.test")})
		m.Apply(s.next(), time.Now())
		d.asked(gatewayV1 + " ack")
		d.say(gatewayBeta, nil, "s/a")
		d.asked(gatewayBeta + " ack")
		d.say(gatewayV1, set{"s/z": gateway("s/z", "z.test")})
		m.Apply(s.next(), time.Now())
		if len(m.Items(config.Key{Kind: config.Gateway, Namespace: "s", Name: "a"})) == 0 {
			t.Error("gone, though the server has it")
		}
	})
}

// A resource that did not change is not decoded again, unless it is invalid: then it is a problem
// of each response.
func TestUnchangedResource(t *testing.T) {
	t.Parallel()
	src, err := New(Config{Name: "mcp:test", Options: Options{Address: "127.0.0.1:1", Plaintext: true}})
	if err != nil {
		t.Fatal(err)
	}
	st := newStream(src, nil)
	sub := st.kinds[0][0]
	sub.resources["shop/same"] = received{group: "same", hash: (&item{typeURL: "x", raw: []byte("y")}).sum(), size: 1}
	sub.resources["shop/bad"] = received{group: "bad", hash: (&item{typeURL: "x", raw: []byte("y")}).sum(), size: 1, invalid: true}
	a := &discoveryv3.DeltaDiscoveryResponse{}
	for _, name := range []string{"shop/same", "shop/bad"} {
		a.Resources = append(a.Resources, &discoveryv3.Resource{Name: name,
			Resource: &anypb.Any{TypeUrl: "x", Value: []byte("y")}})
	}
	changed, removed, problems, err := st.apply(sub, a)
	if err != nil || len(changed)+len(removed) > 0 || len(problems) != 1 || !strings.HasSuffix(problems[0].Object, "shop/bad") {
		t.Errorf("changed %v, removed %v, problems %v, %v; want a problem of shop/bad", changed, removed, problems, err)
	}
}
