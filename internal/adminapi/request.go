package adminapi

import (
	"context"
	"slices"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/authz"
)

// RouteRequest follows a request through what the caller's proxy is sent. The audit log records it.
// Errors: admin.ErrNotFound for the caller.
func (a *API) RouteRequest(ctx context.Context, q admin.RequestQuery) (admin.RoutedRequest, error) {
	out := admin.RoutedRequest{Hops: []admin.Hop{}}
	all := a.Connected()
	i := slices.IndexFunc(all, func(p xds.ProxyStatus) bool {
		n := p.Node
		return slices.Contains([]string{p.ID, n.ID, n.Namespace + "/" + n.ServiceAccount}, q.From)
	})
	if i < 0 {
		return out, notFound("no proxy of %q is connected: write the ID of a proxy (web-1.shop) or a "+
			"service account (shop/web); \"ashorectl proxy-status\" lists proxies", q.From)
	}
	out.Proxy, out.Identity = all[i].ID, all[i].Who.Identity.String()
	types, err := a.resources(ctx, out.Proxy, "explain request")
	var sent authz.Resources
	for _, t := range types {
		sent = append(sent, t.Resources...)
	}
	request := authz.Request{Method: q.Method, Host: q.Host, Port: q.Port, Path: q.Path, Headers: q.Headers}
	for _, hop := range sent.Route(request) {
		out.Hops = append(out.Hops, admin.Hop(hop))
	}
	return out, err
}
