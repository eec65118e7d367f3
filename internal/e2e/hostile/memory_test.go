package hostile

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv1 "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	securityv1 "istio.io/api/security/v1alpha1"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	routeType    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
)

const (
	// fewServices and manyServices are how many services the attacked meshes have.
	fewServices, manyServices = 100, 10_000
	// mostGrowth is by how much one workload may raise the peak of ashored's memory, in KiB. What
	// is in use counts about twice, because Go collects garbage only when the heap has doubled. The
	// peak differs by some 30 MiB between equal runs.
	mostGrowth = 96 << 10
	// mostKept is what may be left of it afterwards, in KiB.
	mostKept = 16 << 10
	// attackTime is the maximum duration of an attack.
	attackTime = 4 * time.Second
)

// One workload renews its certificate as often as it may, opens connections and streams by the
// dozen and sends what costs most. The peak of ashored's memory grows by 96 MiB at most, and comes
// back. Another proxy gets its routes meanwhile.
func TestMemoryOfOneWorkload(t *testing.T) {
	t.Parallel()
	t.Run("small mesh", func(t *testing.T) { attacks(t, fewServices) })
	t.Run("large mesh", func(t *testing.T) { attacks(t, manyServices) })
}

// attacks attacks a mesh with so many services.
func attacks(t *testing.T, services int) {
	m := harness.New(t, map[string]string{"many.yaml": entries(services),
		"groups.yaml": workloadGroup("bad") + workloadGroup("good"), "route.yaml": route(0)}, harness.Secure("log: {level: warn}"))
	bad := newAttacker(t, m)
	own := &m.Enrol(harness.Workload{Name: "good", Group: "shop/good"}).Certificate
	resetMemory(t, m) // what it took to read the services does not count
	for range 3 {
		newProxy(t, m, own, knownNames(services, 0)).end()
	}
	good, edit := newProxy(t, m, own, knownNames(services, 0)), 0
	edits := func(n int) {
		for range n {
			edit++
			m.Write("route.yaml", route(edit))
			good.receives(t, edit)
		}
	}
	edits(20)
	known := func(n int) []string { return knownNames(services, n) }
	before, peak := memoryOf(t, m, "VmRSS"), memoryOf(t, m, "VmHWM")
	for _, attack := range []struct {
		name string
		run  func(ctx context.Context)
	}{
		{"requests that do not end", func(ctx context.Context) { bad.unfinished(ctx, 16<<10) }},
		{"requests that do not end, a byte at a time", func(ctx context.Context) { bad.unfinished(ctx, 1) }},
		{"names that do not exist", func(ctx context.Context) { bad.subscribe(ctx, unknownNames, false) }},
		{"names that exist", func(ctx context.Context) { bad.subscribe(ctx, known, false) }},
		{"claims", func(ctx context.Context) { bad.subscribe(ctx, unknownNames, true) }},
		{"many types", bad.types},
		{"refusals", func(ctx context.Context) { bad.refuse(ctx, known) }},
		{"node IDs", bad.reconnect},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), attackTime)
		var done sync.WaitGroup
		done.Go(func() { attack.run(ctx) })
		edits(3)
		<-ctx.Done()
		done.Wait()
		t.Logf("%s: the peak is %d MiB, %d MiB before all attacks; %s", attack.name, memoryOf(t, m, "VmHWM")>>10,
			peak>>10, bad.summary())
		bad.end()
		cancel()
		if !m.Ashored.Running() {
			t.Fatal("ashored has ended:\n" + m.Ashored.Log())
		}
	}
	if now := memoryOf(t, m, "VmHWM"); now-peak > mostGrowth {
		t.Errorf("the peak grew from %d KiB to %d KiB, by more than %d KiB", peak, now, mostGrowth)
	}
	// Without new allocations, Go collects garbage every two minutes.
	for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); <-time.After(time.Second) {
		if memoryOf(t, m, "VmRSS") <= before+mostKept {
			return
		}
	}
	t.Errorf("%d KiB are resident minutes later, %d KiB before", memoryOf(t, m, "VmRSS"), before)
}

// A real Envoy with 10,000 clusters is within the limits, also when it reconnects and says what it
// has.
func TestLargeEnvoyIsServed(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"many.yaml": entries(manyServices), "groups.yaml": workloadGroup("good")},
		harness.Secure("log: {level: warn}"))
	m.Join(harness.Workload{Name: "good", Group: "shop/good"})
	served := func() error {
		s, err := admin.Send(t.Context(), m.Admin, admin.CallStatus, admin.None{})
		if err != nil || len(s.Proxies) != 1 {
			return fmt.Errorf("proxies %v, error %w", s.Proxies, err)
		}
		for _, typ := range s.Proxies[0].Types {
			if typ.Type == "eds" && typ.Subscribed >= manyServices && typ.Latest {
				return nil
			}
		}
		return fmt.Errorf("it has %+v", s.Proxies[0].Types)
	}
	harness.Eventually(t, "it has all load assignments", served)
	m.Ashored.Stop()
	m.Start()
	harness.Eventually(t, "it has all load assignments from the control plane that was started again", served)
}

// entries are so many services, and one with a route.
func entries(services int) string {
	var b strings.Builder
	for i := range services {
		fmt.Fprintf(&b, `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s%d, namespace: shop}
spec:
  hosts: [service-%d.shop.example.internal]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.1.%d.%d}]
`, i, i, i>>8, i&255)
	}
	return b.String() + `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: edited, namespace: shop}
spec:
  hosts: [edited.example.internal]
  resolution: STATIC
  ports: [{number: 8081, name: http, protocol: HTTP}]
  endpoints: [{address: 10.2.0.1}]
`
}

func workloadGroup(name string) string {
	return strings.ReplaceAll(`---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: NAME, namespace: shop}
spec:
  metadata: {labels: {app: NAME}}
  template: {serviceAccount: NAME}
`, "NAME", name)
}

// route is the edit of that number of a route.
func route(edit int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: edited, namespace: shop}
spec:
  hosts: [edited.example.internal]
  http: [{match: [{uri: {prefix: /edit-%d/}}], route: [{destination: {host: edited.example.internal}}]}]
`, edit)
}

// knownNames are the load assignments of most of so many services, others for each n.
func knownNames(services, n int) []string {
	names := make([]string, 0, services)
	for i := range services {
		if i%97 != n%97 {
			names = append(names, fmt.Sprintf("outbound|80||service-%d.shop.example.internal", i))
		}
	}
	return append(names, strconv.Itoa(n))
}

// unknownNames are load assignments of no service, others for each n.
func unknownNames(n int) []string {
	names := make([]string, 30_000)
	for i := range names {
		names[i] = fmt.Sprintf("outbound|80||unknown-%d.attack-%d.example.internal", i, n)
	}
	return names
}

// memoryOf is a line of ashored's memory, in KiB.
func memoryOf(t *testing.T, m *harness.Mesh, line string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(m.Ashored.PID()), "status"))
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, line+":"); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("there is no %s", line)
	return 0
}

// resetMemory has VmHWM begin again.
func resetMemory(t *testing.T, m *harness.Mesh) {
	t.Helper()
	if err := os.WriteFile(filepath.Join("/proc", strconv.Itoa(m.Ashored.PID()), "clear_refs"), []byte("5"),
		0); err != nil {
		t.Fatal(err)
	}
}

// dial connects to the control plane with a certificate.
func dial(m *harness.Mesh, own *tls.Certificate, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*own}}
	return grpc.NewClient(m.TLS(), append(options, grpc.WithTransportCredentials(credentials.NewTLS(config)))...)
}

// node is the node of a proxy of a group.
func node(group, id string) *corev3.Node {
	return &corev3.Node{Id: fmt.Sprintf("sidecar~10.9.0.1~%s.shop~shop.svc.cluster.local", id),
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"NAMESPACE": structpb.NewStringValue("shop"), "LABELS": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"app": structpb.NewStringValue(group)}}),
		}}}
}

// proxy is a workload that does no harm, and waits for routes.
type proxy struct {
	routes chan string
	end    func() // may be called again
}

// newProxy connects one, which subscribes to clusters, to these load assignments and to routes, and
// waits for its first route.
func newProxy(t *testing.T, m *harness.Mesh, own *tls.Certificate, names []string) *proxy {
	t.Helper()
	conn, err := dial(m, own, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	for _, r := range []*discoveryv3.DeltaDiscoveryRequest{
		{TypeUrl: clusterType, Node: node("good", "good")}, {TypeUrl: endpointType, ResourceNamesSubscribe: names}, {TypeUrl: routeType, ResourceNamesSubscribe: []string{"80", "8081"}},
	} {
		if err == nil {
			err = s.Send(r)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{routes: make(chan string, 1000)}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			r, err := s.Recv()
			if err == nil {
				if r.GetTypeUrl() == routeType {
					p.routes <- r.String()
				}
				err = s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
			}
			if err != nil {
				return
			}
		}
	})
	p.end = func() {
		cancel()
		done.Wait()
		_ = conn.Close()
	}
	t.Cleanup(p.end)
	p.receives(t, 0)
	return p
}

// receives waits for the route of an edit.
func (p *proxy) receives(t *testing.T, edit int) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("edit %d reaches another proxy", edit), func() error {
		select {
		case r := <-p.routes:
			if strings.Contains(r, fmt.Sprintf("/edit-%d/", edit)) {
				return nil
			}
		default:
		}
		return errors.New("it did not")
	})
}

// attacker is a workload with a valid certificate, and with as many more as it may renew.
type attacker struct {
	m     *harness.Mesh
	certs []tls.Certificate

	mu     sync.Mutex
	opened int            // guarded by mu: streams that were opened
	errs   map[string]int // guarded by mu: how streams and connections ended
	closes []func() error // guarded by mu: connections
}

// newAttacker joins and renews.
func newAttacker(t *testing.T, m *harness.Mesh) *attacker {
	t.Helper()
	a := &attacker{m: m, errs: map[string]int{}, certs: []tls.Certificate{m.Enrol(harness.Workload{Name: "bad",
		Group: "shop/bad"}).Certificate}}
	for range 20 {
		next, err := renew(t.Context(), m, &a.certs[len(a.certs)-1])
		if err != nil {
			t.Fatal(err)
		}
		a.certs = append(a.certs, *next)
	}
	return a
}

// renew gets a certificate for a new key.
func renew(ctx context.Context, m *harness.Mesh, own *tls.Certificate) (_ *tls.Certificate, err error) {
	conn, err := dial(m, own)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	key := ca.NewKey()
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, err
	}
	answer, err := securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx,
		&securityv1.IstioCertificateRequest{
			Csr: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}))})
	if err != nil {
		return nil, err
	}
	out := &tls.Certificate{PrivateKey: key}
	for _, text := range answer.GetCertChain()[:len(answer.GetCertChain())-1] {
		for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
			out.Certificate = append(out.Certificate, block.Bytes)
		}
	}
	return out, nil
}

// end closes all connections, and gives the memory of the attacks back that the tests' own process
// took.
func (a *attacker) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.closes {
		_ = c()
	}
	a.opened, a.errs, a.closes = 0, map[string]int{}, nil
	debug.FreeOSMemory()
}

// failed notes how something ended.
func (a *attacker) failed(err error) {
	if err == nil || status.Code(err) == codes.DeadlineExceeded {
		return
	}
	if status.Code(err) == codes.Unknown {
		err = errors.New("connection closed")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.errs[err.Error()]++
}

// summary is what became of an attack.
func (a *attacker) summary() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var lines []string
	for text, n := range a.errs {
		lines = append(lines, fmt.Sprintf("\n\t%d × %.300s", n, text))
	}
	slices.Sort(lines)
	return fmt.Sprintf("%d streams, which ended with:%s", a.opened, strings.Join(lines, ""))
}

// each runs f for connections of all certificates at once, several rounds of them.
func (a *attacker) each(ctx context.Context, connections int,
	f func(ctx context.Context, n int, own *tls.Certificate) error) {
	var all sync.WaitGroup
	for n := range connections {
		all.Go(func() { a.failed(f(ctx, n, &a.certs[n%len(a.certs)])) })
	}
	all.Wait()
}

// unfinished sends the beginning of a request on each of many streams, in frames of that size,
// until the connection ends.
func (a *attacker) unfinished(ctx context.Context, size int) {
	a.each(ctx, 40, func(ctx context.Context, _ int, own *tls.Certificate) error {
		c, err := dialRaw(ctx, a.m.TLS(), own)
		if err != nil {
			return err
		}
		defer c.conn.Close()
		const streams = 30
		for i := range uint32(streams) {
			if err := c.open(2*i + 1); err != nil {
				return err
			}
			a.count()
		}
		for ctx.Err() == nil {
			for i := range uint32(streams) {
				if err := c.fill(ctx, 2*i+1, size, 64<<10); err != nil {
					return err
				}
			}
			c.wait(ctx)
		}
		return nil
	})
}

// count counts a stream that was opened.
func (a *attacker) count() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opened++
}

// opens opens a stream and sends its first requests.
func (a *attacker) opens(ctx context.Context, n int, own *tls.Certificate,
	first ...*discoveryv3.DeltaDiscoveryRequest) (discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, error) {
	conn, err := dial(a.m, own, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20)))
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.closes = append(a.closes, conn.Close)
	a.opened++
	a.mu.Unlock()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	for i, r := range first {
		if err == nil && i == 0 {
			r.Node = node("bad", fmt.Sprintf("bad-%d", n))
		}
		if err == nil {
			err = s.Send(r)
		}
	}
	if errors.Is(err, io.EOF) {
		_, err = s.Recv()
	}
	return s, err
}

// subscribe asks for names on many streams, again and again, and reads nothing.
func (a *attacker) subscribe(ctx context.Context, names func(int) []string, claim bool) {
	a.each(ctx, 120, func(ctx context.Context, n int, own *tls.Certificate) error {
		r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: endpointType, ResourceNamesSubscribe: names(n)}
		if claim {
			r.InitialResourceVersions = map[string]string{}
			for _, name := range r.GetResourceNamesSubscribe() {
				r.InitialResourceVersions[name] = "0123456789abcdef"
			}
		}
		s, err := a.opens(ctx, n, own, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterType,
			ResourceNamesSubscribe: []string{"*", strconv.Itoa(n)}}, r)
		if err != nil {
			return err
		}
		for s.Send(r) == nil { // it waits when the server reads no more
		}
		_, err = s.Recv()
		return err
	})
}

// types subscribes to many types, each with names of its own.
func (a *attacker) types(ctx context.Context) {
	a.each(ctx, 40, func(ctx context.Context, n int, own *tls.Certificate) error {
		var all []*discoveryv3.DeltaDiscoveryRequest
		for i, typeURL := range []string{endpointType, routeType,
			"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"} {
			all = append(all, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL,
				ResourceNamesSubscribe: unknownNames(10*n + i)[:20_000]})
		}
		for i := range 40 {
			all = append(all, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: fmt.Sprint("type.googleapis.com/made.up", i),
				ResourceNamesSubscribe: unknownNames(10*n + i)[:5_000]})
		}
		_, err := a.opens(ctx, n, own, all...)
		if err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
}

// refuse refuses every response, at length.
func (a *attacker) refuse(ctx context.Context, names func(int) []string) {
	words := strings.Repeat("no ", 20_000)
	a.each(ctx, 40, func(ctx context.Context, n int, own *tls.Certificate) error {
		s, err := a.opens(ctx, n, own, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterType,
			ResourceNamesSubscribe: []string{"*", strconv.Itoa(n)}},
			&discoveryv3.DeltaDiscoveryRequest{TypeUrl: endpointType, ResourceNamesSubscribe: names(n)})
		if err != nil {
			return err
		}
		for range 20 {
			r, err := s.Recv()
			if err != nil {
				return err
			}
			if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(),
				ErrorDetail: &statusv1.Status{Message: words}}); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return nil
	})
}

// reconnect comes again and again with another node ID, and leaves a response that it did not
// acknowledge.
func (a *attacker) reconnect(ctx context.Context) {
	names := unknownNames(0)[:100]
	for i := range names {
		names[i] += strings.Repeat("x", 40)
	}
	a.each(ctx, 8, func(ctx context.Context, n int, own *tls.Certificate) error {
		conn, err := dial(a.m, own)
		if err != nil {
			return err
		}
		defer conn.Close()
		for i := 0; i < 2000 && ctx.Err() == nil; i++ {
			one, cancel := context.WithCancel(ctx)
			s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(one)
			if err == nil {
				err = s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node("bad", fmt.Sprintf("bad-%d-%d", n, i)),
					TypeUrl: endpointType, ResourceNamesSubscribe: names})
			}
			if err == nil {
				_, err = s.Recv()
			}
			cancel()
			if err != nil {
				return err
			}
			a.count()
		}
		return nil
	})
}
