package hostile

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

const claimsMesh = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop}
spec: {metadata: {labels: {app: web}}, template: {serviceAccount: web}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: static, namespace: shop}
spec: {address: ADDRESS, serviceAccount: web, labels: {app: web}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: web}}
`

// claimsGroup is the attacker's.
const claimsGroup = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: evil, namespace: shop, annotations: {ashore.io/allow-addresses: "%s"}}
spec: {template: {serviceAccount: evil}}
`

// A workload cannot register the address of another identity, or one that it does not connect from.
// Its reports do not change the health of others.
func TestFalseClaims(t *testing.T) {
	t.Parallel()
	subnet := harness.FreeSubnet(t)
	static := subnet + "200"
	m := harness.New(t, map[string]string{"web.yaml": strings.ReplaceAll(claimsMesh, "ADDRESS", static),
		"evil.yaml": fmt.Sprintf(claimsGroup, "")}, harness.Secure(""), harness.On(subnet))
	victim, evil := m.Enrol(harness.Workload{Name: "web-1",
		Group: "shop/web"}), m.Enrol(harness.Workload{Name: "evil-1", Group: "shop/evil"})
	if err := registerAs(t, m, victim.Certificate, "web", victim.IP, ""); err != nil {
		t.Fatal(err)
	}
	healthy := []string{victim.IP + " web healthy", static + " web healthy"}
	wantWeb(t, m, healthy...)

	for _, claim := range []struct {
		address string
		code    codes.Code
		words   string
	}{
		{static, codes.FailedPrecondition, "WorkloadEntry shop/static of service account shop/web uses it"},
		{victim.IP, codes.FailedPrecondition, "workload shop/web-" + victim.IP + " of service account shop/web uses it"},
		{"169.254.169.254", codes.PermissionDenied, "169.254.169.254"},
		{"224.0.0.1", codes.PermissionDenied, "224.0.0.1"},
		{"0.0.0.0", codes.PermissionDenied, "0.0.0.0"},
		{"10.9.9.9", codes.PermissionDenied, "add 10.9.9.9 or its range to the annotation ashore.io/allow-addresses of WorkloadGroup shop/evil"},
	} {
		err := registerAs(t, m, evil.Certificate, "evil", claim.address, "it is down")
		if status.Code(err) != claim.code || !strings.Contains(fmt.Sprint(err), claim.words) {
			t.Errorf("register %s: got %v, want %v %q", claim.address, err, claim.code, claim.words)
			continue
		}
		m.Audited("registration.refuse", "sa/evil", claim.words)
	}
	wantWeb(t, m, healthy...)

	if err := registerAs(t, m, evil.Certificate, "evil", evil.IP, "it is down"); err != nil {
		t.Fatal(err)
	}
	m.Write("evil.yaml", fmt.Sprintf(claimsGroup, "10.9.0.0/16"))
	harness.Eventually(t, "an allowed address is registered",
		func() error { return registerAs(t, m, evil.Certificate, "evil", "10.9.9.9", "") })
	wantWeb(t, m, append(healthy, evil.IP+" evil unhealthy", "10.9.9.9 evil healthy")...)
}

// wantWeb waits until the endpoints of web.test are these.
func wantWeb(t *testing.T, m *harness.Mesh, want ...string) {
	t.Helper()
	slices.Sort(want)
	harness.Eventually(t, "the endpoints of web.test", func() error {
		var got []string
		services, err := admin.Send(t.Context(), m.Admin, admin.CallServices,
			admin.ServiceQuery{Host: "web.test", Endpoints: true})
		for _, s := range services {
			for _, ep := range s.Endpoints {
				got = append(got, ep.Address+" "+ep.ServiceAccount+" "+ep.Health)
			}
		}
		if slices.Sort(got); err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("they are %q, want %q", got, want)
		}
		return err
	})
}

// registerAs connects the proxy of a workload, which registers an address with the label app=web.
// It reports that it is unhealthy with this reason, or healthy. It stays connected until the test
// ends.
func registerAs(t *testing.T, m *harness.Mesh, own tls.Certificate, group, address, unhealthy string) error {
	t.Helper()
	tlsConfig := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{own},
		MinVersion: tls.VersionTLS13}
	conn, err := grpc.NewClient(m.TLS(), grpc.WithTransportCredentials(credentials.NewTLS(tlsConfig)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	meta, err := structpb.NewStruct(map[string]any{"NAMESPACE": "shop", "AUTO_REGISTER_GROUP": group,
		"LABELS": map[string]any{"app": "web"}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	report := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "type.googleapis.com/istio.v1.HealthInformation"}
	if unhealthy != "" {
		report.ErrorDetail = &rpcstatus.Status{Code: 500, Message: unhealthy}
	}
	node := &corev3.Node{Id: "sidecar~" + address + "~" + group + ".shop~shop.svc.cluster.local", Metadata: meta}
	for _, r := range []*discoveryv3.DeltaDiscoveryRequest{{Node: node,
		TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"}, report} {
		if err := s.Send(r); err != nil {
			break // receiving returns the reason
		}
	}
	_, err = s.Recv()
	return err
}
