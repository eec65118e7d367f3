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

// A client that is expelled receives the reason, and its workload is removed. Other clients stay.
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
