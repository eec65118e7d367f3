package xds_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/xds"
)

// A workload is present while its proxy is connected, to this or another replica. When its stream
// has ended it is not, although it is still registered: a machine that left may join again at once.
func TestPresent(t *testing.T) {
	t.Parallel()
	a, rt := newAuthority(t), newRuntime(t)
	p := newSecurePlane(t, a, func(c *xds.Config) { c.Runtime = rt })
	p.publishObjects(groups())
	web, api := a.web(), a.issue("shop", "api", time.Hour, time.Now())
	of := func(leaf string) func(string) bool { return func(f string) bool { return f == leaf } }
	ours := of(ca.Fingerprint(web.Leaf))
	if got, ok := p.server.Present(ours); ok {
		t.Errorf("before it came: %v", got)
	}
	before := time.Now()
	l := call(t, p, web)
	if err := l.connects(node(t, map[string]any{"AUTO_REGISTER_GROUP": "web"})); err != nil {
		t.Fatal(err)
	}
	if got, ok := p.server.Present(ours); !ok || got.Address.String() != "10.0.0.1" ||
		got.Since.Before(before) {
		t.Errorf("while it is connected: %v, %v", got, ok)
	}
	if got, ok := p.server.Present(of(ca.Fingerprint(api.Leaf))); ok {
		t.Errorf("somebody else: %v", got)
	}
	other := newSecurePlane(t, a, func(c *xds.Config) { c.Runtime = rt })
	if got, ok := other.server.Present(ours); !ok || got.Address.String() != "10.0.0.1" {
		t.Errorf("at another replica: %v, %v", got, ok)
	}
	l.hang()
	becomes(t, rt, "shop/web-10.0.0.1 of web, gone")
	for name, plane := range map[string]*plane{"this": p, "another": other} {
		eventually(t, func() string {
			if got, ok := plane.server.Present(ours); ok {
				return fmt.Sprintf("after its stream has ended, %s replica: %v", name, got)
			}
			return ""
		})
	}
}

// Who is expelled is told why, nothing is left of its workload, and nobody else is.
func TestExpel(t *testing.T) {
	t.Parallel()
	a, rt := newAuthority(t), newRuntime(t)
	p := newSecurePlane(t, a, func(c *xds.Config) { c.Runtime = rt })
	p.publishObjects(groups())
	web, api := a.web(), a.issue("shop", "api", time.Hour, time.Now())
	cut, stays := call(t, p, web), call(t, p, &api)
	for l, group := range map[*line]string{cut: "web", stays: "api"} {
		if err := l.connects(node(t, map[string]any{"AUTO_REGISTER_GROUP": group,
			"INSTANCE_IPS": map[string]string{"web": "10.0.0.1", "api": "10.0.0.2"}[group]})); err != nil {
			t.Fatal(err)
		}
	}
	p.server.Expel(func(q xds.Peer) bool { return q.Fingerprint == ca.Fingerprint(web.Leaf) },
		&xds.NotJoinedError{Public: "another machine joined", Err: errors.New("another one joined")})
	for {
		_, err := cut.Recv()
		if err == nil {
			continue
		}
		if s := status.Convert(err); s.Code() != codes.PermissionDenied || s.Message() != "another machine joined" {
			t.Errorf("ended with %v", err)
		}
		break
	}
	becomes(t, rt, "shop/api-10.0.0.2 of api")
	p.publishObjects(groups())
	eventually(t, func() string {
		if n := len(p.server.Proxies()); n != 1 {
			return fmt.Sprintf("%d proxies are left, want 1", n)
		}
		return ""
	})
}
