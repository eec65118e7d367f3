package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	securityv1 "istio.io/api/security/v1alpha1"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/internal/testport"
)

const groupFile = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop}
spec:
  template: {serviceAccount: web}
`

// secureSite is a site with an authority, at an address of its own.
type secureSite struct {
	*site
	secure string
}

func newSecureSite(t *testing.T) *secureSite {
	t.Helper()
	s := &secureSite{newSite(t), testport.Address(t)}
	s.put(t, "group.yaml", groupFile)
	s.more = []string{"--set", "xds.address=" + s.secure}
	return s
}

// member is a workload that may have joined.
type member struct {
	site *secureSite
	hash string // of the root
	key  *ecdsa.PrivateKey
	cert *tls.Certificate // nil before it has one

	group string // the WorkloadGroup that it registers in; empty: none
}

// joined is the workload shop/web-1, which has joined, and the token that it used.
func (s *secureSite) joined(t *testing.T) (web *member, made admin.Token) {
	t.Helper()
	made, err := admin.Send(t.Context(), admin.NewClient(s.socket), admin.CallCreateToken, admin.TokenRequest{Group: "shop/web"})
	if err != nil {
		t.Fatal(err)
	}
	web = s.newMember(t, made)
	if err := web.ask(t, made.Token, "web-1"); err != nil {
		t.Fatal(err)
	}
	return web, made
}

// newMember makes a key, and takes the hash of the root from a join command.
func (s *secureSite) newMember(t *testing.T, made admin.Token) *member {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &member{site: s, hash: flagOf(made.Join, "--ca-hash"), key: key}
}

// flagOf is the value of a flag in the words of a command.
func flagOf(words []string, name string) string {
	if i := slices.Index(words, name); i >= 0 && i+1 < len(words) {
		return words[i+1]
	}
	return ""
}

// dial connects with TLS. Whoever answers has to be a control plane below the root that the join
// command named.
func (m *member) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	c := &tls.Config{InsecureSkipVerify: true, VerifyConnection: m.isControlPlane} //nolint:gosec // VerifyConnection does
	if m.cert != nil {
		c.Certificates = []tls.Certificate{*m.cert}
	}
	conn, err := grpc.NewClient(m.site.secure, grpc.WithTransportCredentials(credentials.NewTLS(c)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // some tests do earlier
	return conn
}

func (m *member) isControlPlane(s tls.ConnectionState) error {
	chain := s.PeerCertificates
	pool, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range chain[1:] {
		if ca.RootID(c) == m.hash {
			pool.AddCert(c)
		} else {
			between.AddCert(c)
		}
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between}); err != nil {
		return err
	}
	if len(chain[0].URIs) != 1 || chain[0].URIs[0].String() != "spiffe://cluster.local/ashore/control-plane" {
		return fmt.Errorf("its names are %v", chain[0].URIs)
	}
	return nil
}

// ask asks for a certificate, with a token when there is one, else with the certificate that it
// has.
func (m *member) ask(t *testing.T, token, workload string) error {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, m.key)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	conn := m.dial(t)
	answer, err := securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx,
		&securityv1.IstioCertificateRequest{
			Csr:      string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
			Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"Workload": structpb.NewStringValue(workload)}},
		})
	if err := errors.Join(err, conn.Close()); err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(m.key)
	if err != nil {
		t.Fatal(err)
	}
	chain := strings.Join(answer.GetCertChain()[:len(answer.GetCertChain())-1], "")
	cert, err := tls.X509KeyPair([]byte(chain), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
	m.cert = &cert
	return err
}

// stream asks for clusters as a node. What it returns receives one answer, or fails as the stream
// does.
func (m *member) stream(t *testing.T, node string) (receive func() error) {
	t.Helper()
	st, err := m.dial(t).NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources")
	if err != nil {
		t.Fatal(err)
	}
	id := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), node)
	if m.group != "" {
		meta, err := structpb.NewStruct(map[string]any{"AUTO_REGISTER_GROUP": m.group})
		if err != nil {
			t.Fatal(err)
		}
		text, err := proto.Marshal(meta)
		if err != nil {
			t.Fatal(err)
		}
		id = protowire.AppendBytes(protowire.AppendTag(id, 3, protowire.BytesType), text)
	}
	req := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), id)
	req = protowire.AppendString(protowire.AppendTag(req, 2, protowire.BytesType),
		"type.googleapis.com/envoy.config.cluster.v3.Cluster")
	var msg emptypb.Empty
	msg.ProtoReflect().SetUnknown(req)
	if err := st.SendMsg(&msg); err != nil && !errors.Is(err, io.EOF) { // refused already: receiving tells why
		t.Fatal(err)
	}
	return func() error {
		var answer emptypb.Empty
		return st.RecvMsg(&answer)
	}
}

const webNode = "sidecar~10.0.0.9~web-1.shop~shop.svc.cluster.local"

// A machine joins with the line that an operator copies, is served by its identity alone, and is
// out the moment that it is revoked, until it is restored; the audit log tells it all, and no
// secret.
func TestIdentity(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	s.start(t)
	client, ctx := admin.NewClient(s.socket), t.Context()
	made, err := admin.Send(ctx, client, admin.CallCreateToken, admin.TokenRequest{Group: "shop/web", TTL: "10m"})
	if err != nil {
		t.Fatal(err)
	}
	token := made.Token
	if flagOf(made.Join, "--control-plane") != s.secure || flagOf(made.Join, "--group") != "shop/web" ||
		made.Identity != "spiffe://cluster.local/ns/shop/sa/web" || len(made.Notes) != 1 {
		t.Errorf("made %+v", made)
	}
	web, thief := s.newMember(t, made), s.newMember(t, made)
	for range 2 { // pasting the line twice is harmless
		if err := web.ask(t, token, "web-1"); err != nil {
			t.Fatalf("join: %v", err)
		}
	}
	if err := thief.ask(t, token,
		"web-1"); status.Code(err) != codes.PermissionDenied ||
		!strings.Contains(err.Error(), "ashorectl join-token create --group") {
		t.Errorf("a used token with another key: %v", err)
	}

	receive := web.stream(t, webNode)
	if err := receive(); err != nil {
		t.Fatalf("xDS with a certificate: %v", err)
	}
	if err := web.stream(t, strings.ReplaceAll(webNode, "shop", "bank"))(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a node of another namespace: %v", err)
	}
	if err := thief.stream(t, webNode)(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("xDS without a certificate: %v", err)
	}
	list, err := admin.Send(ctx, client, admin.CallWorkloads, admin.None{})
	if err != nil || len(list.Workloads) != 1 || list.Workloads[0].Name != "shop/web-1" ||
		!slices.Equal(list.Workloads[0].Proxies, []string{"web-1.shop"}) {
		t.Fatalf("workloads %+v, %v", list, err)
	}

	other := admin.RevokeRequest{Name: "spiffe://cluster.local/ns/shop/sa/other", Force: true}
	heard, err := admin.Send(ctx, client, admin.CallRevoke, other)
	wantHeard(t, heard, err, 1, "connected proxies that receive it now: 1")
	heard, err = admin.Send(ctx, client, admin.CallRestore, other)
	wantHeard(t, heard, err, 1, "connected proxies that receive it now: 1")
	heard, err = admin.Send(ctx, client, admin.CallRevoke, admin.RevokeRequest{Name: "shop/web-1", Reason: "stolen"})
	wantHeard(t, heard, err, 0, "WARNING: no proxy is connected") // but the one that is out
	for err = nil; err == nil; {                                  // what was sent before the cut
		err = receive()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream of who is revoked ended with %v", err)
	}
	if err := web.ask(t, "", ""); status.Code(err) != codes.Unauthenticated {
		t.Errorf("renewal of who is revoked: %v", err)
	}
	if err := web.stream(t, webNode)(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a new stream of who is revoked: %v", err)
	}
	if _, err := admin.Send(ctx, client, admin.CallRestore, admin.RevokeRequest{Name: "shop/web-1"}); err != nil {
		t.Fatal(err)
	}
	if err := web.ask(t, "", ""); err != nil {
		t.Errorf("renewal of who is restored: %v", err)
	}
	s.checkAudit(t, client, token)
}

// wantHeard looks at whether an answer says how many proxies hear of it.
func wantHeard(t *testing.T, got admin.Revoked, err error, proxies int, note string) {
	t.Helper()
	if err != nil || got.Proxies != proxies || len(got.Notes) == 0 || !strings.HasPrefix(got.Notes[0], note) {
		t.Errorf("%+v, %v; want that %d proxies hear of it: %q", got, err, proxies, note)
	}
}

// checkAudit looks for what TestIdentity did.
func (s *secureSite) checkAudit(t *testing.T, client *admin.Client, token string) {
	t.Helper()
	seen := map[string]int{}
	events, err := admin.Send(t.Context(), client, admin.CallAudit, admin.AuditQuery{Lines: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		seen[e.Action+" "+e.Outcome]++
	}
	for _, want := range []string{"token.create ok", "token.use ok", "token.refuse refused", "certificate.issue ok",
		"certificate.refuse refused", "workload.revoke ok", "workload.restore ok"} {
		if seen[want] == 0 {
			t.Errorf("no %s in the audit log, which has %v", want, seen)
		}
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "state", "audit.jsonl"))
	_, secret, _ := strings.Cut(strings.TrimPrefix(token, "ashore-join."), ".")
	if err != nil || bytes.Contains(text, []byte(secret)) || strings.Contains(s.log.String(), secret) {
		t.Errorf("the secret of the token is in a log (%v)", err)
	}
}

// What operators ask that makes no sense has words and a status.
func TestOperatorMistakes(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	s.start(t)
	client, ctx := admin.NewClient(s.socket), t.Context()
	s.joined(t)
	token := func(group, ttl string) error {
		_, err := admin.Send(ctx, client, admin.CallCreateToken, admin.TokenRequest{Group: group, TTL: ttl})
		return err
	}
	revokeToken := func(id string) error {
		_, err := admin.Send(ctx, client, admin.CallRevokeToken, admin.TokenID{ID: id})
		return err
	}
	revoke := func(r admin.RevokeRequest) error { _, err := admin.Send(ctx, client, admin.CallRevoke, r); return err }
	restore := func(r admin.RevokeRequest) error { _, err := admin.Send(ctx, client, admin.CallRestore, r); return err }
	rotate := func(force bool) error {
		_, err := admin.Send(ctx, client, admin.CallRotate, admin.RotateRequest{Force: force})
		return err
	}
	for _, tc := range []struct {
		what string
		err  error
		is   error
		want string
	}{
		{"no such group", token("shop/none", ""), admin.ErrNotFound, "ashorectl get workloadgroup"},
		{"no group", token("web", ""), admin.ErrNotFound, "ashorectl get workloadgroup"},
		{"long life", token("shop/web", "9999h"), admin.ErrInvalid, "want 1m to 168h0m0s"},
		{"no such token", revokeToken("none"), admin.ErrNotFound, "none"},
		{"no such workload", revoke(admin.RevokeRequest{Name: "shop/none"}), admin.ErrNotFound, "shop/none"},
		{"nearly a workload", revoke(admin.RevokeRequest{Name: "shop/wbe-1"}), admin.ErrNotFound, "nothing is revoked: no workload is known as shop/wbe-1"},
		{"nobody's identity", revoke(admin.RevokeRequest{Name: "spiffe://cluster.local/ns/shop/sa/nobody"}), admin.ErrNotFound, "--force"},
		{"another mesh's identity", revoke(admin.RevokeRequest{Name: "spiffe://other/ns/shop/sa/web"}), admin.ErrNotFound, "spiffe://other/ns/shop/sa/web"},
		{"nobody's identity, forced", revoke(admin.RevokeRequest{Name: "spiffe://cluster.local/ns/shop/sa/nobody", Force: true}), nil, ""},
		{"once more", revoke(admin.RevokeRequest{Name: "spiffe://cluster.local/ns/shop/sa/nobody"}), nil, ""},
		{"the identity of a group", revoke(admin.RevokeRequest{Name: "spiffe://cluster.local/ns/shop/sa/web"}), nil, ""},
		{"a token for it", token("shop/web", ""), admin.ErrConflict, "the identity of the group is revoked: spiffe://cluster.local/ns/shop/sa/web"},
		{"a long reason", revoke(admin.RevokeRequest{Name: "shop/web", Reason: strings.Repeat("x", 2000)}), admin.ErrInvalid, "2000 bytes"},
		{"not revoked", restore(admin.RevokeRequest{Name: "shop/web"}), admin.ErrNotFound, "shop/web is not revoked"},
		{"no identity", revoke(admin.RevokeRequest{Name: "http://x"}), admin.ErrInvalid, ""},
		{"nothing to force", rotate(true), admin.ErrConflict, "nothing to force"},
	} {
		if !errors.Is(tc.err, tc.is) || !strings.Contains(fmt.Sprint(tc.err), tc.want) {
			t.Errorf("%s: got %v, want %v with %q", tc.what, tc.err, tc.is, tc.want)
		}
	}
	s.checkNothingDone(t, client)
}

// checkNothingDone looks in the audit log for what came to nothing in TestOperatorMistakes.
func (s *secureSite) checkNothingDone(t *testing.T, client *admin.Client) {
	t.Helper()
	failed := map[string]bool{}
	events, err := admin.Send(t.Context(), client, admin.CallAudit, admin.AuditQuery{Lines: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Outcome == audit.Failed {
			failed[e.Action+" "+e.Target] = true
		}
	}
	for _, want := range []string{"workload.revoke shop/wbe-1",
		"workload.revoke spiffe://cluster.local/ns/shop/sa/nobody", "workload.restore shop/web"} {
		if !failed[want] {
			t.Errorf("the audit log does not have that %s came to nothing: %v", want, failed)
		}
	}
}

// A rotation waits for workloads until they have renewed, and leaves nobody behind who knows the old
// root alone.
func TestRotation(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	s.start(t)
	client, ctx := admin.NewClient(s.socket), t.Context()
	before, err := admin.Send(ctx, client, admin.CallAuthority, admin.None{})
	if err != nil || before.Kind != "self-signed" || len(before.Roots) != 1 || !before.Rotation.Since.IsZero() {
		t.Fatalf("authority %+v, %v", before, err)
	}
	web, _ := s.joined(t)
	waits := func(a admin.Authority) bool {
		return slices.ContainsFunc(a.Rotation.Waiting, func(w admin.Waiting) bool { return w.Name == "shop/web-1" })
	}
	during, err := admin.Send(ctx, client, admin.CallRotate, admin.RotateRequest{Reason: "test"})
	if err != nil || during.Signer.Root == before.Signer.Root || len(during.Roots) != 2 || !waits(during) {
		t.Fatalf("a rotation that was begun: %+v, %v; want that it waits for the workload", during, err)
	}
	for range 2 { // dial believes the old root alone; a new certificate counts after 10 s or with a second one
		if web.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
		if err := web.ask(t, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	if during, err = admin.Send(ctx, client, admin.CallAuthority, admin.None{}); err != nil || waits(during) {
		t.Errorf("%+v, %v; want that it waits for the workload no more", during.Rotation, err)
	}
	after, err := admin.Send(ctx, client, admin.CallRotate, admin.RotateRequest{Force: true, Reason: "test"})
	if err != nil || len(after.Roots) != 1 || after.Roots[0].Root != during.Signer.Root {
		t.Fatalf("forced: %+v, %v", after, err)
	}
}

// What was written is there after the process was killed: tokens, workloads, revocations, and the
// same authority.
func TestIdentityOutlivesKill(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	cmd, wait := s.child(t)
	client, ctx := admin.NewClient(s.socket), t.Context()
	web, _ := s.joined(t)
	if _, err := admin.Send(ctx, client, admin.CallRevoke,
		admin.RevokeRequest{Name: "spiffe://cluster.local/ns/shop/sa/web"}); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wait()
	s.start(t)
	if err := web.ask(t, "", ""); status.Code(err) != codes.Unauthenticated {
		t.Errorf("renewal of who was revoked before the kill: %v", err)
	}
	if _, err := admin.Send(ctx, client, admin.CallRestore,
		admin.RevokeRequest{Name: "spiffe://cluster.local/ns/shop/sa/web"}); err != nil {
		t.Fatal(err)
	}
	if err := web.ask(t, "", ""); err != nil { // below the same root: dial looks
		t.Errorf("renewal after the kill: %v", err)
	}
	s.checkKeys(t)
}

// A store that is lost lets nobody in who was revoked, and leaves nobody else out.
func TestStoreLostBesideAuthority(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	client, ctx := admin.NewClient(s.socket), t.Context()
	cmd, wait := s.child(t)
	web, _ := s.joined(t)
	if _, err := admin.Send(ctx, client, admin.CallRevoke, admin.RevokeRequest{Name: "shop/web-1", Reason: "stolen"}); err != nil {
		t.Fatal(err)
	}
	if problems, err := admin.Send(ctx, client, admin.CallProblems, admin.None{}); err != nil || len(problems) != 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wait()
	if err := os.Remove(filepath.Join(s.dir, "state", "ashore.db")); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	if list, err := admin.Send(ctx, client, admin.CallWorkloads, admin.None{}); err != nil || len(list.Revocations) != 1 ||
		list.Revocations[0].Reason != "stolen" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := web.stream(t, webNode)(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a stream of who was revoked: %v", err)
	}
	heard, err := admin.Send(ctx, client, admin.CallRestore, admin.RevokeRequest{Name: "shop/web-1"})
	wantHeard(t, heard, err, 0, "WARNING: no proxy is connected")
	if err := web.stream(t, webNode)(); err != nil {
		t.Errorf("a stream of who joined before the loss: %v", err)
	}
	if err := web.ask(t, "", ""); err != nil {
		t.Errorf("renewal of who joined before the loss: %v", err)
	}
}

// checkKeys looks at the modes of what is secret.
func (s *secureSite) checkKeys(t *testing.T) {
	t.Helper()
	keys := 0
	err := filepath.WalkDir(filepath.Join(s.dir, "state"), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil && strings.Contains(d.Name(), "key") {
			keys++
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
		}
		return err
	})
	if err != nil || keys == 0 {
		t.Errorf("%d keys were found, %v", keys, err)
	}
}

// Without an authority its questions say why there is no answer.
func TestNoAuthority(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(t)
	client, ctx := admin.NewClient(s.socket), t.Context()
	if _, err := admin.Send(ctx, client, admin.CallCreateToken, admin.TokenRequest{Group: "shop/web"}); !errors.Is(err, admin.ErrNotSetUp) ||
		!strings.Contains(err.Error(), "--set xds.address=") {
		t.Errorf("got %v", err)
	}
	if _, err := admin.Send(ctx, client, admin.CallAudit, admin.AuditQuery{Lines: 1}); err != nil {
		t.Errorf("the audit log is there without an authority: %v", err)
	}
}

// A plugged-in authority that is bad keeps the program from starting, with the setting and the
// file.
func TestBadPlugged(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	dir := filepath.Join(s.dir, "plugged")
	settings := filepath.Join(s.dir, "ashored.yaml")
	text := fmt.Sprintf("ca: {plugged: %q}\n", dir)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(settings, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	var said testlog.Text
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if code := run(ctx, append(s.args(), "--config", settings), &said, &said); code != exitFailed ||
		!strings.Contains(said.String(), "setting ca.plugged") || !strings.Contains(said.String(), "ca-cert.pem") {
		t.Errorf("exit code %d, it said %q", code, &said)
	}
}

const denyFile = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: shop}
spec:
  action: DENY
  rules:
  - from:
    - source: {principals: [cluster.local/ns/shop/sa/web, cluster.local/ns/shop/sa/wbe]}
`

// A policy that denies a caller that does not exist is a problem.
func TestUnknownPrincipals(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	s.put(t, "deny.yaml", denyFile)
	s.start(t)
	s.joined(t)
	var problems []feed.Problem
	s.until(t, "a problem", func() bool {
		var err error
		problems, err = admin.Send(t.Context(), admin.NewClient(s.socket), admin.CallProblems, admin.None{})
		return err == nil && len(problems) > 0
	})
	if len(problems) != 1 || !strings.HasSuffix(problems[0].File, "deny.yaml") ||
		problems[0].Field != "spec.rules[0].from[0].source.principals[1]" ||
		!strings.Contains(problems[0].Text, "did you mean shop/web?") {
		t.Errorf("problems %v", problems)
	}
}
