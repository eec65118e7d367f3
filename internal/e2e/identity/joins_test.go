package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// joins is how many workloads join at once.
const joins = 1000

const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// A thousand workloads join at once, each with a key and a token of its own: each gets a
// certificate of its own, connects with it, is registered, and becomes an endpoint. No workload is
// refused, and nothing is counted twice.
func TestCrowdJoins(t *testing.T) {
	t.Parallel()
	const meta = "kind: WorkloadGroup\nmetadata: {name: web, namespace: shop"
	// all connect from loopback
	web := strings.Replace(service("web"), meta, meta+`, annotations: {ashore.io/allow-addresses: 10.200.0.0/16}`, 1)
	m := harness.New(t, map[string]string{"web.yaml": web}, harness.Secure(""))
	m.Token("shop/web", "") // there once the group is known
	tokens := make([]admin.Token, joins)
	inTurns(t, joins, 8, func(i int) (err error) {
		tokens[i], err = admin.Send(t.Context(), m.Admin, admin.CallCreateToken, admin.TokenRequest{Group: "shop/web"})
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	var streams sync.WaitGroup
	defer streams.Wait()
	defer cancel()
	begin := time.Now()
	certificates := make([]*tls.Certificate, joins)
	inTurns(t, joins, joins, func(i int) (err error) {
		certificates[i], err = join(ctx, m, tokens[i].Token, member(i))
		return err
	})
	t.Logf("%d workloads have certificates after %v", joins, time.Since(begin).Round(10*time.Millisecond))
	served := make(chan error, joins)
	for i, c := range certificates {
		if c != nil {
			streams.Go(func() { stay(ctx, m, c, i, served) })
		}
	}
	for range certificates {
		if err := <-served; err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d workloads have their configuration after %v", joins, time.Since(begin).Round(10*time.Millisecond))
	wait(t, 2*time.Minute, "everybody is an endpoint", func() error {
		n, err := endpoints(t, m, certificates[0])
		if err == nil && n != joins {
			err = fmt.Errorf("%d are", n)
		}
		return err
	})
	t.Logf("%d workloads are endpoints after %v", joins, time.Since(begin).Round(10*time.Millisecond))
	connected(t, m, joins)

	serials := map[string]bool{}
	for _, c := range certificates {
		serials[c.Leaf.SerialNumber.Text(16)] = true
		if got := uri(c.Leaf); got != "spiffe://cluster.local/ns/shop/sa/web" {
			t.Errorf("a certificate is for %s", got)
		}
	}
	list, err := admin.Send(t.Context(), m.Admin, admin.CallWorkloads, admin.None{})
	if err != nil {
		t.Fatal(err)
	}
	if len(serials) != joins || len(list.Workloads) != joins {
		t.Errorf("there are %d certificates and %d workloads, want %d", len(serials), len(list.Workloads), joins)
	}
	again, err := admin.Send(t.Context(), m.Admin, admin.CallTokens, admin.None{})
	if err != nil {
		t.Fatal(err)
	}
	used := 0
	for _, token := range again {
		if token.State == "used" {
			used++
		}
	}
	if used != joins {
		t.Errorf("%d tokens are used, want %d", used, joins)
	}
	events := map[string]int{}
	recorded, err := admin.Send(t.Context(), m.Admin, admin.CallAudit, admin.AuditQuery{Lines: 10 * joins})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range recorded {
		events[e.Action]++
	}
	if events[audit.TokenUse] != joins ||
		events[audit.CertificateIssue] != joins || events[audit.TokenRefuse] != 0 {
		t.Errorf("the audit log has %v", events)
	}
}

// inTurns calls f for 0 to n-1, so many at a time, and fails the test with the first error.
func inTurns(t *testing.T, n, together int, f func(int) error) {
	t.Helper()
	turns := make(chan struct{}, together)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		turns <- struct{}{}
		all.Go(func() {
			errs[i] = f(i)
			<-turns
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		text, _, _ := strings.Cut(err.Error(), "\n")
		t.Fatalf("%s (%d lines like it)", text, strings.Count(err.Error(), "\n"))
	}
}

// member is the name of a workload.
func member(i int) string { return fmt.Sprintf("web-%d", i) }

// memberIP is its address.
func memberIP(i int) string { return fmt.Sprintf("10.200.%d.%d", i>>8, i&255) }

// join joins with a token.
func join(ctx context.Context, m *harness.Mesh, token, name string) (_ *tls.Certificate, err error) {
	// On a busy machine the handshakes of a thousand take longer than ashored allows: connect again then.
	conn, err := dialTLS(m.TLS(), nil, grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	key := ca.NewKey()
	return certify(ctx, conn, key, token, name)
}

// node is the node of a member's proxy.
func node(i int) (*corev3.Node, error) {
	meta, err := structpb.NewStruct(map[string]any{
		"NAME": member(i), "NAMESPACE": "shop", "INSTANCE_IPS": memberIP(i), "AUTO_REGISTER_GROUP": "web", "INTERCEPTION_MODE": "NONE", "LABELS": map[string]any{},
	})
	if err != nil {
		return nil, err
	}
	return &corev3.Node{Id: fmt.Sprintf("sidecar~%s~%s.shop~shop.svc.cluster.local", memberIP(i), member(i)),
		Cluster: "web", Metadata: meta}, nil
}

// open starts a stream and asks for a type; names are for types that are asked for by name.
func open(ctx context.Context, m *harness.Mesh, own *tls.Certificate, n *corev3.Node, typeURL string,
	names ...string) (discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, func() error, error) {
	conn, err := dialTLS(m.TLS(), own)
	if err != nil {
		return nil, nil, err
	}
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		err = s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: typeURL, ResourceNamesSubscribe: names})
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return s, conn.Close, nil
}

// stay connects member i until ctx ends, and reports once that it is served, or the error.
func stay(ctx context.Context, m *harness.Mesh, own *tls.Certificate, i int, served chan<- error) {
	n, err := node(i)
	if err != nil {
		served <- err
		return
	}
	s, end, err := open(ctx, m, own, n, clusterType)
	if err != nil {
		served <- err
		return
	}
	defer func() { _ = end() }() // it ends with ctx
	for first := true; ; first = false {
		r, err := s.Recv()
		if first {
			served <- err
		}
		if err == nil {
			err = s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
		}
		if err != nil {
			return // ctx has ended, or ashored has: then the test fails
		}
	}
}

// endpoints is how many endpoints web has for who looks, with the certificate of a member.
func endpoints(t *testing.T, m *harness.Mesh, own *tls.Certificate) (_ int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n, err := node(0)
	if err != nil {
		return 0, err
	}
	meta := n.GetMetadata().GetFields()
	delete(meta, "AUTO_REGISTER_GROUP")
	n.Id = strings.Replace(n.GetId(), member(0), "looker", 1)
	s, end, err := open(ctx, m, own, n, endpointType, "outbound|8080||web.test")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	r, err := s.Recv()
	if err != nil {
		return 0, err
	}
	count := 0
	for _, resource := range r.GetResources() {
		var load endpointv3.ClusterLoadAssignment
		if err := resource.GetResource().UnmarshalTo(&load); err != nil {
			return 0, err
		}
		for _, locality := range load.GetEndpoints() {
			count += len(locality.GetLbEndpoints())
		}
	}
	return count, nil
}
