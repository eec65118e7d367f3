package xds_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// authority issues certificates and says which of them count.
type authority struct {
	t      *testing.T
	signer *ca.Signer

	mu       sync.Mutex
	revoked  map[string]bool // identities
	verified func()          // called after each verification, when it is set
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key := ca.NewKey()
	s, err := ca.NewRoot("test", time.Hour, key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t: t, signer: s, revoked: map[string]bool{}}
}

// issue makes a certificate of spiffe://cluster.local/ns/<namespace>/sa/<account>.
func (a *authority) issue(namespace, account string, validity time.Duration, now time.Time) tls.Certificate {
	a.t.Helper()
	return a.issueTo("", namespace, account, validity, now)
}

// issueTo is issue for a workload, "namespace/name".
func (a *authority) issueTo(workload, namespace, account string, validity time.Duration,
	now time.Time) tls.Certificate {
	a.t.Helper()
	key := ca.NewKey()
	id, err := spiffe.New("cluster.local", namespace, account)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := ca.Issue(a.signer,
		ca.Grant{ID: id, Workload: workload, Key: key.Public(), Validity: validity}, now)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// web is a certificate of shop/web.
func (a *authority) web() *tls.Certificate {
	c := a.issue("shop", "web", time.Hour, time.Now())
	return &c
}

// verify implements xds.Config.Verify.
func (a *authority) verify(chain []*x509.Certificate, now time.Time) (spiffe.ID, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.verified != nil {
		defer a.verified()
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.signer.Root)
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return spiffe.ID{}, err
	}
	id, err := spiffe.Of(chain[0])
	if err == nil && a.revoked[id.String()] {
		err = errors.New("it is revoked")
	}
	return id, err
}

// revoke revokes the identity of a service account in namespace shop.
func (a *authority) revoke(account string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revoked["spiffe://cluster.local/ns/shop/sa/"+account] = true
}

// newSecurePlane serves xDS with TLS.
func newSecurePlane(t *testing.T, a *authority, change func(*xds.Config)) *plane {
	t.Helper()
	server := a.issue("ashore", "control-plane", time.Hour, time.Now())
	p := newPlane(t, nil, testport.Address(t), func(c *xds.Config) {
		c.Verify, c.Workload = a.verify, ca.WorkloadName
		if change != nil {
			change(c)
		}
	}, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{server},
		ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS13})))
	p.publish(serving("a", 1)...)
	return p
}

// line is one delta stream of a proxy.
type line struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	t *testing.T
	// hang ends it.
	hang func()
}

// call connects to a plane, with a certificate, with TLS but without one (an empty one), or without
// TLS (nil).
func call(t *testing.T, p *plane, cert *tls.Certificate) *line {
	t.Helper()
	creds := insecure.NewCredentials()
	if cert != nil {
		// the server's side is what is tested
		cfg := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
		if cert.PrivateKey != nil {
			cfg.Certificates = []tls.Certificate{*cert}
		}
		creds = credentials.NewTLS(cfg)
	}
	conn, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	hang := func() { cancel(); conn.Close() }
	t.Cleanup(hang)
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &line{st, t, hang}
}

// node is one of shop/web with metadata.
func node(t *testing.T, metadata map[string]any) *corev3.Node {
	t.Helper()
	n := &corev3.Node{Id: xdstest.NodeID("web", "10.0.0.1")}
	if metadata["NAMESPACE"] == nil {
		metadata["NAMESPACE"] = "shop"
	}
	var err error
	if n.Metadata, err = structpb.NewStruct(metadata); err != nil {
		t.Fatal(err)
	}
	return n
}

// says sends a request. That the stream has ended shows when something is received.
func (l *line) says(r *discoveryv3.DeltaDiscoveryRequest) {
	l.t.Helper()
	if err := l.Send(r); err != nil && !errors.Is(err, io.EOF) {
		l.t.Fatal(err)
	}
}

// ask asks for a type, introducing a node where that is not nil.
func (l *line) ask(n *corev3.Node, typeURL string) {
	l.t.Helper()
	l.says(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: typeURL})
}

// hears waits for a response of a type and acknowledges whatever arrives.
func (l *line) hears(typeURL string) (*discoveryv3.DeltaDiscoveryResponse, error) {
	for {
		r, err := l.Recv()
		if err != nil {
			return nil, err
		}
		l.says(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
		if r.TypeUrl == typeURL {
			return r, nil
		}
	}
}

// connects introduces a node and waits for clusters.
func (l *line) connects(n *corev3.Node) error {
	l.t.Helper()
	l.ask(n, resource.ClusterType)
	_, err := l.hears(resource.ClusterType)
	return err
}

// ended waits for the end of the stream.
func (l *line) ended() codes.Code {
	for {
		if _, err := l.Recv(); err != nil {
			return status.Code(err)
		}
	}
}

// A stream speaks for the namespace and service account that its certificate is of, or not at all.
func TestPeerIdentity(t *testing.T) {
	t.Parallel()
	a, foreign := newAuthority(t), newAuthority(t)
	a.revoke("thief")
	p := newSecurePlane(t, a, nil)
	plain := newPlane(t, nil, testport.Address(t), func(c *xds.Config) { c.Verify = a.verify })
	plain.publish(serving("a", 1)...)
	expired := a.issue("shop", "web", time.Minute, time.Now().Add(-time.Hour+2*time.Minute))
	stranger := foreign.issue("shop", "web", time.Hour, time.Now())
	thief := a.issue("shop", "thief", time.Hour, time.Now())
	for name, tc := range map[string]struct {
		plane    *plane
		cert     *tls.Certificate
		metadata map[string]any
		want     codes.Code
	}{
		"its own":                         {p, a.web(), map[string]any{"SERVICE_ACCOUNT": "web"}, codes.OK},
		"no service account named":        {p, a.web(), map[string]any{}, codes.OK},
		"another namespace":               {p, a.web(), map[string]any{"NAMESPACE": "bank"}, codes.PermissionDenied},
		"another service account":         {p, a.web(), map[string]any{"SERVICE_ACCOUNT": "api"}, codes.PermissionDenied},
		"no certificate":                  {p, &tls.Certificate{}, map[string]any{}, codes.Unauthenticated},
		"of another authority":            {p, &stranger, map[string]any{}, codes.Unauthenticated},
		"out of date":                     {p, &expired, map[string]any{}, codes.Unauthenticated},
		"revoked":                         {p, &thief, map[string]any{}, codes.Unauthenticated},
		"without TLS, on such a listener": {plain, nil, map[string]any{"SERVICE_ACCOUNT": "api", "NAMESPACE": "bank"}, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := call(t, tc.plane, tc.cert).connects(node(t, tc.metadata)); status.Code(err) != tc.want {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// A server that verifies nobody takes nobody with TLS.
func TestNoVerifier(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	p := newSecurePlane(t, a, func(c *xds.Config) { c.Verify = nil })
	if err := call(t, p, a.web()).connects(node(t, map[string]any{})); status.Code(err) != codes.Unauthenticated {
		t.Errorf("got %v", err)
	}
}

// Who a proxy is shows in its status, and generators know that it can prove it.
func TestPeerStatus(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	p, cert := newSecurePlane(t, a, nil), a.web()
	if err := call(t, p, cert).connects(node(t, map[string]any{})); err != nil {
		t.Fatal(err)
	}
	all := p.server.Proxies()
	if len(all) != 1 {
		t.Fatalf("%d proxies", len(all))
	}
	got, leaf := all[0], cert.Leaf
	if got.Who.Identity.String() != "spiffe://cluster.local/ns/shop/sa/web" ||
		got.Who.Serial != fmt.Sprintf("%x", leaf.SerialNumber.Bytes()) || !got.Who.Expires.Equal(leaf.NotAfter) ||
		got.Who.Fingerprint != ca.Fingerprint(leaf) {
		t.Errorf("who: %+v", got.Who)
	}
	if !got.Node.Identity || got.Node.ServiceAccount != "web" {
		t.Errorf("node: identity %v, service account %q", got.Node.Identity, got.Node.ServiceAccount)
	}
}

// A stream ends when its certificate does.
func TestStreamEndsWithCertificate(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	p := newSecurePlane(t, a, nil)
	cert := a.issue("shop", "web", 2*time.Second, time.Now())
	l, lasting := call(t, p, &cert), call(t, p, a.web())
	for _, l := range []*line{l, lasting} {
		if err := l.connects(node(t, map[string]any{})); err != nil {
			t.Fatal(err)
		}
	}
	if code := l.ended(); code != codes.Unauthenticated {
		t.Errorf("ended with %v", code)
	}
	if !time.Now().After(cert.Leaf.NotAfter) {
		t.Error("it ended before its certificate")
	}
	eventually(t, func() string {
		if n := len(p.server.Proxies()); n != 1 {
			return fmt.Sprintf("%d proxies are left", n)
		}
		return ""
	})
}

// What is revoked is cut off at once, and nobody else.
func TestRecheck(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	p := newSecurePlane(t, a, nil)
	web, api := a.web(), a.issue("shop", "api", time.Hour, time.Now())
	cut, stays := call(t, p, web), call(t, p, &api)
	for _, l := range []*line{cut, stays} {
		if err := l.connects(node(t, map[string]any{})); err != nil {
			t.Fatal(err)
		}
	}
	p.server.Recheck() // nothing is revoked yet
	a.revoke("web")
	p.server.Recheck()
	if code := cut.ended(); code != codes.Unauthenticated {
		t.Errorf("ended with %v", code)
	}
	if err := call(t, p, web).connects(node(t, map[string]any{})); status.Code(err) != codes.Unauthenticated {
		t.Errorf("it comes back: %v", err)
	}
	p.publish(append(serving("a", 1), serving("b", 1)...)...)
	if _, err := stays.hears(resource.ClusterType); err != nil {
		t.Errorf("the other one: %v", err)
	}
}

// A revocation that falls between the verification of a stream and its intake is not missed.
func TestRecheckBetween(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	p := newSecurePlane(t, a, nil)
	api := a.issue("shop", "api", time.Hour, time.Now())
	witness := call(t, p, &api)
	if err := witness.connects(node(t, map[string]any{})); err != nil {
		t.Fatal(err)
	}
	verified, passed := 0, make(chan struct{})
	a.mu.Lock()
	a.verified = func() { // mu is held
		switch verified++; verified {
		case 1: // the stream's
			a.revoked["spiffe://cluster.local/ns/shop/sa/web"] = true
			p.server.Recheck()
		case 2: // the pass, which knows of the witness alone, has come to it
			close(passed)
		}
	}
	a.mu.Unlock()
	l := call(t, p, a.web())
	select {
	case <-passed:
	case <-time.After(20 * time.Second):
		t.Fatal("there was no pass")
	}
	l.ask(node(t, map[string]any{}), resource.ClusterType)
	if code := l.ended(); code != codes.Unauthenticated {
		t.Errorf("ended with %v", code)
	}
}

// Who is known to be revoked goes before anybody is verified anew, which may take long.
func TestRevokedGoFirst(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	var revoked atomic.Bool
	stuck := make(chan struct{})
	defer close(stuck) // before the server ends, which waits
	p := newSecurePlane(t, a, func(c *xds.Config) {
		c.Verify = func(chain []*x509.Certificate, now time.Time) (spiffe.ID, error) {
			if revoked.Load() {
				<-stuck
			}
			return a.verify(chain, now)
		}
		c.Revoked = func(id spiffe.ID, fingerprint string) error {
			if revoked.Load() && id.ServiceAccount == "web" && len(fingerprint) == 64 {
				return errors.New("it is revoked")
			}
			return nil
		}
	})
	api := a.issue("shop", "api", time.Hour, time.Now())
	cut, stays := call(t, p, a.web()), call(t, p, &api)
	for _, l := range []*line{cut, stays} {
		if err := l.connects(node(t, map[string]any{})); err != nil {
			t.Fatal(err)
		}
	}
	revoked.Store(true)
	p.server.Recheck()
	if code := cut.ended(); code != codes.Unauthenticated {
		t.Errorf("ended with %v", code)
	}
	p.publish(append(serving("a", 1), serving("b", 1)...)...)
	if _, err := stays.hears(resource.ClusterType); err != nil {
		t.Errorf("the other one: %v", err)
	}
}

// Nobody keeps a proxy out by saying its node ID: streams are counted by who they are of.
func TestNodeIDOfAnother(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	p := newSecurePlane(t, a, nil)
	api := a.issue("shop", "api", time.Hour, time.Now())
	for i := range 17 {
		err := call(t, p, &api).connects(node(t, map[string]any{}))
		if want := map[bool]codes.Code{false: codes.OK,
			true: codes.ResourceExhausted}[i == 16]; status.Code(err) != want {
			t.Fatalf("stream %d: got %v, want %v", i+1, err, want)
		}
	}
	if err := call(t, p, a.web()).connects(node(t, map[string]any{})); err != nil {
		t.Errorf("the proxy of that ID: %v", err)
	}
}

// A peer without a certificate is who its token proves, until the token expires or its identity is
// revoked.
func TestToken(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	for _, c := range []struct {
		name   string
		node   string // namespace that the node says
		err    error
		expiry time.Duration
		during bool       // the identity is revoked while the token is checked
		want   codes.Code // of the end of the stream; OK: it is served
	}{
		{name: "good", node: "shop", expiry: time.Hour},
		{name: "revoked meanwhile", node: "shop", expiry: time.Hour, during: true, want: codes.Unauthenticated},
		{name: "of another namespace", node: "bank", expiry: time.Hour, want: codes.PermissionDenied},
		{name: "refused", node: "shop", err: errors.New("not of this cluster"), want: codes.Unauthenticated},
		{name: "not known now", node: "shop", err: status.Error(codes.Unavailable, "try again"), want: codes.Unavailable},
		{name: "expired", node: "shop", expiry: -time.Second, want: codes.Unauthenticated},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var revoked atomic.Bool
			var p *plane
			p = newSecurePlane(t, a, func(x *xds.Config) {
				x.Token = func(context.Context) (spiffe.ID, time.Time, error) {
					return spiffe.ID{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}, time.Now().Add(c.expiry), c.err
				}
				x.Revoked = func(spiffe.ID, string) error {
					if revoked.Load() {
						return errors.New("it is revoked")
					}
					if c.during {
						revoked.Store(true)
						p.server.Recheck()
					}
					return nil
				}
			})
			l := call(t, p, &tls.Certificate{})
			got := status.Code(l.connects(node(t, map[string]any{"NAMESPACE": c.node})))
			if got == codes.OK && c.want != codes.OK { // a response may be faster than the end
				got = l.ended()
			}
			if got != c.want {
				t.Fatalf("got %v, want %v", got, c.want)
			}
			if c.want != codes.OK {
				return
			}
			revoked.Store(true)
			p.server.Recheck()
			if got := l.ended(); got != codes.Unauthenticated {
				t.Errorf("after the revocation the stream ended with %v", got)
			}
			if got := status.Code(call(t, p, &tls.Certificate{}).connects(node(t, map[string]any{}))); got != codes.Unauthenticated {
				t.Errorf("a new stream of the revoked identity got %v", got)
			}
		})
	}
}
