package gen

import (
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
)

// bypassed says that the workload serves something and takes its connections itself: nothing is redirected to the proxy,
// and no ingress listener of a Sidecar stands before the workload.
func (in inboundListenersIn) bypassed() bool {
	return in.base.interception == push.None && in.own.Inbound.Len() > 0 && (in.sidecar == nil || len(in.sidecar.Spec.Ingress) == 0)
}

// isProtected says that policies judge who calls the workload.
func isProtected(sc *push.Scope) bool {
	return sc.AuthorizationPolicy.Len()+sc.RequestAuthentication.Len() > 0
}

// workload is how operators know the workload: by its first address.
func (in inboundListenersIn) workload() string {
	if a := in.addresses(); len(a) > 0 {
		return a[0].String()
	}
	return "without an address"
}

// unguardedWorkload is the problem of a workload that policies are to protect and that its proxy does not stand before.
func unguardedWorkload(name string) feed.Problem {
	return feed.Problem{Severity: feed.Warning, Text: "the workload " + name + " takes its connections itself, so that its policies (a PeerAuthentication with STRICT, AuthorizationPolicy, RequestAuthentication) are not enforced: " +
		"redirect its connections to the proxy, or write a Sidecar with ingress listeners and let the application listen on a loopback address alone"}
}
