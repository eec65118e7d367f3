package xds_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/shared"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// healthType is what proxies report their workload's health by.
const healthType = "type.googleapis.com/istio.v1.HealthInformation"

// newRuntime makes a Runtime that runs until the test ends.
func newRuntime(t *testing.T) *shared.Runtime {
	t.Helper()
	m, err := shared.New(t.Context(),
		shared.Config{Records: record.NewMemory(), SingleReplica: true, Log: testlog.New(t), Grace: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return m
}

// publishObjects publishes configuration, and clusters so that streams have something to wait for.
// Groups take workloads of 10.0.0.0/8, which all connect from loopback.
func (p *plane) publishObjects(specs map[config.Key]proto.Message) {
	c := p.mesh.Context(xdstest.Layers(serving("a", 1)...))
	for k, spec := range specs {
		o := &config.Object{Key: k, Spec: spec}
		if k.Kind == config.WorkloadGroup {
			o.Annotations = map[string]string{config.AllowAddressesAnnotation: "10.0.0.0/8"}
		}
		c.Objects = c.Objects.With(k, o)
	}
	p.server.Publish(c, time.Now())
}

// groups are two WorkloadGroups of shop and one of bank, and two WorkloadEntries.
func groups() map[config.Key]proto.Message {
	group := func(account string) proto.Message {
		return &networking.WorkloadGroup{Template: &networking.WorkloadEntry{ServiceAccount: account}}
	}
	return map[config.Key]proto.Message{
		{Kind: config.WorkloadGroup, Namespace: "shop", Name: "web"}:   group("web"),
		{Kind: config.WorkloadGroup, Namespace: "shop", Name: "other"}: group("web"),
		{Kind: config.WorkloadGroup, Namespace: "shop", Name: "api"}:   group("api"),
		{Kind: config.WorkloadGroup, Namespace: "shop", Name: "plain"}: group(""),
		{Kind: config.WorkloadGroup, Namespace: "bank", Name: "bank"}:  group("web"),
		{Kind: config.WorkloadEntry, Namespace: "shop", Name: "web-1"}: &networking.WorkloadEntry{Address: "10.0.0.8", ServiceAccount: "web"},
		{Kind: config.WorkloadEntry, Namespace: "shop", Name: "api-1"}: &networking.WorkloadEntry{Address: "10.0.0.9", ServiceAccount: "api"},
	}
}

// names writes out who is registered.
func names(rt registry.Runtime) string {
	var out []string
	for k, r := range rt.Registrations().All() {
		text := k.Namespace + "/" + k.Name + " of " + k.Group
		if !r.DisconnectedAt.IsZero() {
			text += ", gone"
		}
		switch r.Health.State {
		case registry.ReportedHealthy:
			text += ", healthy"
		case registry.ReportedUnhealthy:
			text += ", unhealthy: " + r.Health.Message
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// becomes waits until who is registered is want.
func becomes(t *testing.T, rt registry.Runtime, want string) {
	t.Helper()
	eventually(t, func() string {
		if got := names(rt); got != want {
			return fmt.Sprintf("registered: %q, want %q", got, want)
		}
		return ""
	})
}

// Who registers has to be of the namespace and service account of what it registers as.
func TestWhoRegisters(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	api := a.issue("shop", "api", time.Hour, time.Now())
	byDefault := a.issue("shop", "default", time.Hour, time.Now())
	for name, tc := range map[string]struct {
		cert     *tls.Certificate // nil: without TLS
		anybody  bool
		metadata map[string]any
		want     codes.Code
		names    string
	}{
		"its group":                   {a.web(), false, map[string]any{"AUTO_REGISTER_GROUP": "web"}, codes.OK, "shop/web-10.0.0.1 of web"},
		"with a network":              {a.web(), false, map[string]any{"AUTO_REGISTER_GROUP": "web", "NETWORK": "n1"}, codes.OK, "shop/web-10.0.0.1-n1 of web"},
		"another group of its":        {a.web(), false, map[string]any{"AUTO_REGISTER_GROUP": "other"}, codes.OK, "shop/other-10.0.0.1 of other"},
		"a group of another account":  {a.web(), false, map[string]any{"AUTO_REGISTER_GROUP": "api"}, codes.PermissionDenied, ""},
		"the default account":         {&byDefault, false, map[string]any{"AUTO_REGISTER_GROUP": "plain"}, codes.OK, "shop/plain-10.0.0.1 of plain"},
		"a group of nobody's account": {a.web(), false, map[string]any{"AUTO_REGISTER_GROUP": "plain"}, codes.PermissionDenied, ""},
		"no such group":               {a.web(), false, map[string]any{"AUTO_REGISTER_GROUP": "nope"}, codes.FailedPrecondition, ""},
		"of another namespace":        {a.web(), false, map[string]any{"AUTO_REGISTER_GROUP": "bank"}, codes.FailedPrecondition, ""},
		"as another namespace":        {a.web(), false, map[string]any{"AUTO_REGISTER_GROUP": "bank", "NAMESPACE": "bank"}, codes.PermissionDenied, ""},
		"its entry":                   {a.web(), false, map[string]any{"WORKLOAD_ENTRY": "web-1"}, codes.OK, "shop/web-1 of "},
		"an entry of another account": {&api, false, map[string]any{"WORKLOAD_ENTRY": "web-1"}, codes.PermissionDenied, ""},
		"no such entry":               {a.web(), false, map[string]any{"WORKLOAD_ENTRY": "web-2"}, codes.FailedPrecondition, ""},
		"both: the group counts":      {a.web(), false, map[string]any{"WORKLOAD_ENTRY": "web-2", "AUTO_REGISTER_GROUP": "web"}, codes.OK, "shop/web-10.0.0.1 of web"},
		"too many labels":             {a.web(), false, map[string]any{"AUTO_REGISTER_GROUP": "web", "LABELS": manyLabels()}, codes.InvalidArgument, ""},
		"nothing asked":               {a.web(), false, map[string]any{}, codes.OK, ""},
		"nobody":                      {nil, false, map[string]any{"AUTO_REGISTER_GROUP": "web"}, codes.PermissionDenied, ""},
		"nobody, for an entry":        {nil, false, map[string]any{"WORKLOAD_ENTRY": "web-1"}, codes.PermissionDenied, ""},
		"nobody, in development":      {nil, true, map[string]any{"AUTO_REGISTER_GROUP": "web"}, codes.OK, "shop/web-10.0.0.1 of web"},
		"proven, in development":      {a.web(), true, map[string]any{"AUTO_REGISTER_GROUP": "api"}, codes.PermissionDenied, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt := newRuntime(t)
			refused := make(chan audit.Event, 1)
			change := func(c *xds.Config) {
				c.Runtime, c.RegisterAnybody, c.Audit = rt, tc.anybody, func(e audit.Event) { refused <- e }
			}
			var p *plane
			if tc.cert == nil {
				p = newPlane(t, nil, testport.Address(t), change)
			} else {
				p = newSecurePlane(t, a, change)
			}
			p.publishObjects(groups())
			_, elsewhere := tc.metadata["NAMESPACE"] // node writes the field
			err := call(t, p, tc.cert).connects(node(t, tc.metadata))
			if status.Code(err) != tc.want || names(rt) != tc.names {
				t.Errorf("got %v, registered %q; want %v, %q", err, names(rt), tc.want, tc.names)
			}
			if tc.want == codes.FailedPrecondition && !strings.Contains(err.Error(), "cannot find Workload") {
				t.Errorf("it is not told what is missing: %v", err)
			}
			if tc.want == codes.OK || elsewhere {
				return // nothing was refused, or the whole stream
			}
			if e := <-refused; e.Action != audit.RegistrationRefuse || e.Outcome != audit.Refused || e.Reason == "" ||
				strings.Contains(e.Reason, "rpc error") {
				t.Errorf("recorded: %+v", e)
			}
		})
	}
}

// manyLabels are more than a registration may have, in bytes.
func manyLabels() map[string]any {
	out := map[string]any{}
	for i := range 100 {
		out[fmt.Sprint("label", i)] = strings.Repeat("x", registry.MaxRegistration/100)
	}
	return out
}

// registering is an authority, what holds registrations, and a control plane of both that knows the
// groups.
func registering(t *testing.T) (*authority, *shared.Runtime, *plane) {
	t.Helper()
	a, rt := newAuthority(t), newRuntime(t)
	p := newSecurePlane(t, a, func(c *xds.Config) { c.Runtime = rt })
	p.publishObjects(groups())
	return a, rt, p
}

// What a registration holds is what the node says and what the certificate proves.
func TestRegistrationContents(t *testing.T) {
	t.Parallel()
	a, rt, p := registering(t)
	n := node(t, map[string]any{"AUTO_REGISTER_GROUP": "web", "LABELS": map[string]any{"version": "v2"},
		"INSTANCE_IPS": "10.1.1.1,2001:db8::1", "INTERCEPTION_MODE": "NONE",
		"PROXY_CONFIG": map[string]any{"readinessProbe": map[string]any{"httpGet": map[string]any{"port": 8080}}}})
	if err := call(t, p, a.web()).connects(n); err != nil {
		t.Fatal(err)
	}
	r := rt.Registrations().At(registry.RegistrationKey{Namespace: "shop", Group: "web", Name: "web-10.1.1.1"})
	if r == nil {
		t.Fatalf("registered: %s", names(rt))
	}
	if r.Identity != "spiffe://cluster.local/ns/shop/sa/web" || fmt.Sprint(r.Addresses) != "[10.1.1.1 2001:db8::1]" ||
		!r.Probed || !r.Unintercepted {
		t.Errorf("got %+v", r)
	}
	if d := cmp.Diff(map[string]string{"version": "v2"}, r.Labels); d != "" {
		t.Errorf("labels (-want +got):\n%s", d)
	}
}

// reports says how a workload is; no words: well.
func (l *line) reports(words string) {
	l.t.Helper()
	r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: healthType}
	if words != "" {
		r.ErrorDetail = &rpcstatus.Status{Code: 500, Message: words}
	}
	l.says(r)
}

// Health is reported on any stream of a workload, and the end of its last stream is noticed.
func TestHealthReports(t *testing.T) {
	t.Parallel()
	a, rt, p := registering(t)
	asked := func() map[string]any { return map[string]any{"AUTO_REGISTER_GROUP": "web"} }
	l := call(t, p, a.web())
	l.reports("too early") // before the node: nobody knows whose it is
	if err := l.connects(node(t, asked())); err != nil {
		t.Fatal(err)
	}
	becomes(t, rt, "shop/web-10.0.0.1 of web")
	l.reports("503")
	becomes(t, rt, "shop/web-10.0.0.1 of web, unhealthy: 503")
	if all := p.server.Proxies(); len(all) != 1 || all[0].Health.State != registry.ReportedUnhealthy ||
		all[0].Health.Message != "503" {
		t.Errorf("the connected proxies tell %+v", all)
	}
	l.reports("")
	becomes(t, rt, "shop/web-10.0.0.1 of web, healthy")
	l.reports(strings.Repeat("é", 5000))
	eventually(t, func() string {
		for _, r := range rt.Registrations().All() {
			if n := len(r.Health.Message); n < 1000 || n > 1024+len("…") {
				return fmt.Sprintf("%d bytes of message", n)
			}
		}
		return ""
	})
	newer := call(t, p, a.web())
	if err := newer.connects(node(t, asked())); err != nil {
		t.Fatal(err)
	}
	newer.reports("")
	becomes(t, rt, "shop/web-10.0.0.1 of web, healthy")
	l.hang()
	eventually(t, func() string {
		if n := len(p.server.Proxies()); n != 1 {
			return fmt.Sprintf("%d proxies", n)
		}
		return ""
	})
	becomes(t, rt, "shop/web-10.0.0.1 of web, healthy")
	newer.hang()
	becomes(t, rt, "shop/web-10.0.0.1 of web, gone, healthy")
}

// A proxy shows with the labels of its group: it is selected by them.
func TestShownWithGroupLabels(t *testing.T) {
	t.Parallel()
	a, rt := newAuthority(t), newRuntime(t)
	p := newSecurePlane(t, a, func(c *xds.Config) { c.Runtime = rt })
	all := groups()
	all[config.Key{Kind: config.WorkloadGroup, Namespace: "shop", Name: "web"}] = &networking.WorkloadGroup{
		Template: &networking.WorkloadEntry{ServiceAccount: "web"}, Metadata: &networking.WorkloadGroup_ObjectMeta{Labels: map[string]string{"app": "web"}}}
	p.publishObjects(all)
	l := call(t, p, a.web())
	if err := l.connects(node(t, map[string]any{"AUTO_REGISTER_GROUP": "web"})); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		proxies := p.server.Proxies()
		if len(proxies) == 1 && fmt.Sprint(proxies[0].Node.Labels.Items()) == "[{app web}]" {
			return ""
		}
		return fmt.Sprintf("%+v", proxies)
	})
}

// A report of somebody who is not registered is nobody's, and harms nothing.
func TestUnregisteredReport(t *testing.T) {
	t.Parallel()
	rt := newRuntime(t)
	p := newPlane(t, nil, testport.Address(t), func(c *xds.Config) { c.Runtime = rt })
	p.publishObjects(groups())
	l := call(t, p, nil)
	l.reports("x")
	if err := l.connects(node(t, map[string]any{})); err != nil {
		t.Fatal(err)
	}
	l.reports("y")
	p.publish(serving("b", 1)...)
	if _, err := l.hears(resource.ClusterType); err != nil {
		t.Fatal(err)
	}
	if got := names(rt); got != "" {
		t.Errorf("registered: %s", got)
	}
}

// One address in two groups is two workloads, each with its own health.
func TestTwoGroups(t *testing.T) {
	t.Parallel()
	a, rt, p := registering(t)
	web, other := call(t, p, a.web()), call(t, p, a.web())
	for group, l := range map[string]*line{"web": web, "other": other} {
		if err := l.connects(node(t, map[string]any{"AUTO_REGISTER_GROUP": group})); err != nil {
			t.Fatal(err)
		}
	}
	web.reports("503")
	becomes(t, rt, "shop/other-10.0.0.1 of other; shop/web-10.0.0.1 of web, unhealthy: 503")
	other.hang()
	becomes(t, rt, "shop/other-10.0.0.1 of other, gone; shop/web-10.0.0.1 of web, unhealthy: 503")
}

// Of a revoked workload nothing is left at once; of one whose certificate ended, the grace.
func TestExpelled(t *testing.T) {
	t.Parallel()
	a, rt, p := registering(t)
	revoked := call(t, p, a.web())
	if err := revoked.connects(node(t, map[string]any{"AUTO_REGISTER_GROUP": "web"})); err != nil {
		t.Fatal(err)
	}
	short := a.issue("shop", "api", 5*time.Second, time.Now())
	late := call(t, p, &short)
	if err := late.connects(node(t, map[string]any{"AUTO_REGISTER_GROUP": "api",
		"INSTANCE_IPS": "10.0.0.2"})); err != nil {
		t.Fatal(err)
	}
	a.revoke("web")
	p.server.Recheck()
	eventually(t, func() string {
		if got := names(rt); strings.Contains(got, "web") {
			return "registered: " + got
		}
		return ""
	})
	becomes(t, rt, "shop/api-10.0.0.2 of api, gone")
}

// The bundle that a proxy acknowledged is told; without an authority nobody is answered.
func TestBundles(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	p := newSecurePlane(t, a, nil)
	trust := func(id string) {
		c := p.mesh.Context(xdstest.Layers(append(serving("a", 1), bundle("root of "+id))...))
		c.Scope(push.Facets{}).Trust = &push.Trust{ID: id}
		p.server.Publish(c, time.Now())
	}
	told := func(want string) {
		t.Helper()
		eventually(t, func() string {
			var got []string
			for _, s := range p.server.Proxies() {
				got = append(got, fmt.Sprintf("%s %q", s.Who.Identity.ServiceAccount, s.Bundle))
			}
			if text := strings.Join(got, "; "); text != want {
				return fmt.Sprintf("told %s, want %s", text, want)
			}
			return ""
		})
	}
	l := call(t, p, a.web())
	l.ask(node(t, map[string]any{}), xds.ProxyConfigType)
	l.ask(nil, resource.ClusterType)
	if r, err := l.Recv(); err != nil || r.TypeUrl != resource.ClusterType {
		t.Fatalf("without an authority: %v, %v", r.GetTypeUrl(), err)
	}
	told(`web ""`)
	trust("one")
	l.ask(nil, xds.ProxyConfigType)
	if _, err := l.hears(xds.ProxyConfigType); err != nil {
		t.Fatal(err)
	}
	told(`web "one"`)
	trust("two")
	r, err := l.Recv()
	if err != nil || r.TypeUrl != xds.ProxyConfigType {
		t.Fatalf("after the rotation: %v, %v", r.GetTypeUrl(), err)
	}
	told(`web "one"`) // it did not acknowledge yet
	trust("three")
	l.says(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
	told(`web "one"`) // there is a newer one already
	if r, err = l.Recv(); err != nil {
		t.Fatal(err)
	}
	l.says(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce,
		ErrorDetail: &rpcstatus.Status{Message: "no"}})
	eventually(t, func() string {
		for _, ty := range p.server.Proxies()[0].Types {
			if ty.TypeURL == xds.ProxyConfigType && ty.Rejections == 0 {
				return "the rejection did not arrive"
			}
		}
		return ""
	})
	told(`web "one"`)

	again := call(t, p, a.web()) // another one comes with what it has from another replica
	trust("two")
	n := node(t, map[string]any{})
	n.Id = xdstest.NodeID("other", "10.0.0.2")
	again.says(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: xds.ProxyConfigType,
		InitialResourceVersions: map[string]string{bundle("").Name: bundle("root of two").Version()}})
	l.hang()
	told(`web "two"`)
}

// A certificate registers as long as its key is its workload's, and in the group that this joined.
func TestRegistersWhatItJoined(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	for name, tc := range map[string]struct {
		group    string
		err      error
		metadata map[string]any
		want     codes.Code
	}{
		"its group":               {"shop/web", nil, map[string]any{"AUTO_REGISTER_GROUP": "web"}, codes.OK},
		"no group":                {"", nil, map[string]any{"AUTO_REGISTER_GROUP": "web"}, codes.OK},
		"an entry":                {"shop/web", nil, map[string]any{"WORKLOAD_ENTRY": "web-1"}, codes.OK},
		"another group":           {"shop/web", nil, map[string]any{"AUTO_REGISTER_GROUP": "other"}, codes.PermissionDenied},
		"replaced":                {"", fmt.Errorf("looked up: %w", &xds.NotJoinedError{Public: "another machine joined", Err: errors.New("no space left")}), map[string]any{"AUTO_REGISTER_GROUP": "web"}, codes.PermissionDenied},
		"replaced, for an entry":  {"", &xds.NotJoinedError{Err: errors.New("no space left")}, map[string]any{"WORKLOAD_ENTRY": "web-1"}, codes.PermissionDenied},
		"nobody knows":            {"", errors.New("no space left on device"), map[string]any{"AUTO_REGISTER_GROUP": "web"}, codes.Unavailable},
		"replaced, asks for none": {"", &xds.NotJoinedError{}, map[string]any{}, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web := a.web()
			p := newSecurePlane(t, a, func(c *xds.Config) {
				c.Runtime = newRuntime(t)
				c.Joined = func(_ context.Context, leaf *x509.Certificate) (string, error) {
					if !leaf.Equal(web.Leaf) {
						t.Error("asked of another certificate")
					}
					return tc.group, tc.err
				}
			})
			p.publishObjects(groups())
			err := call(t, p, web).connects(node(t, tc.metadata))
			if status.Code(err) != tc.want || err != nil && strings.Contains(err.Error(), "space left") {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			told := ""
			if not, ok := errors.AsType[*xds.NotJoinedError](tc.err); ok {
				told = not.Public
			}
			if !strings.Contains(fmt.Sprint(err), told) {
				t.Errorf("got %v, want %q", err, told)
			}
		})
	}
}

// Whoever is refused again and again does not fill the audit log; metrics count each time.
func TestRefusedRegistrationsAreBounded(t *testing.T) {
	t.Parallel()
	a, rt, reg := newAuthority(t), newRuntime(t), prometheus.NewRegistry()
	var recorded atomic.Int64
	p := newSecurePlane(t, a, func(c *xds.Config) {
		c.Runtime, c.Registerer, c.Audit = rt, reg, func(audit.Event) { recorded.Add(1) }
	})
	p.publishObjects(groups())
	web := a.web()
	for range 60 {
		l := call(t, p, web)
		if err := l.connects(node(t,
			map[string]any{"AUTO_REGISTER_GROUP": "api"})); status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
		l.hang()
	}
	if n := recorded.Load(); n < 1 || n > 55 {
		t.Errorf("%d of 60 were recorded", n)
	}
	stays := call(t, p, web)
	if err := stays.connects(node(t, map[string]any{"AUTO_REGISTER_GROUP": "web"})); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"pilot_xds_refused_streams": 60, "ashore_workloads_registered": 1}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		var sum float64 // of all labels
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		if n, ok := want[f.GetName()]; ok && sum != n {
			t.Errorf("%v, want %v", f, n)
		}
		delete(want, f.GetName())
	}
	if len(want) > 0 {
		t.Errorf("there is no metric %v", want)
	}
}

// One workload does not fill a group with registrations that it makes up, whichever certificates it
// has, and comes back with those it has.
func TestOneWorkloadRegistersFew(t *testing.T) {
	t.Parallel()
	a, rt := newAuthority(t), newRuntime(t)
	first, renewed, another := a.web(), a.web(), a.web()
	p := newSecurePlane(t, a, func(c *xds.Config) {
		c.Runtime = rt
		c.Workload = func(leaf *x509.Certificate) string {
			if leaf.Equal(another.Leaf) {
				return "shop/web-2"
			}
			return "shop/web-1"
		}
	})
	p.publishObjects(groups())
	at := func(cert *tls.Certificate, address string) error {
		l := call(t, p, cert)
		defer l.hang() // it stays registered for the grace
		return l.connects(node(t, map[string]any{"AUTO_REGISTER_GROUP": "web", "INSTANCE_IPS": address}))
	}
	for i := range 40 {
		cert := first
		if i%2 == 1 {
			cert = renewed
		}
		if err := at(cert, fmt.Sprint("10.0.1.", i)); (err == nil) != (i < 16) || err != nil &&
			status.Code(err) != codes.ResourceExhausted {
			t.Errorf("registration %d: %v", i, err)
		}
	}
	if n := rt.Registrations().Len(); n != 16 {
		t.Errorf("%d are registered", n)
	}
	if err := at(renewed, "10.0.1.0"); err != nil {
		t.Errorf("one that is known comes back: %v", err)
	}
	if err := at(another, "10.0.2.1"); err != nil {
		t.Errorf("another machine: %v", err)
	}
	// of the same identity: it takes the registration over, as one more of its own
	if err := at(another, "10.0.1.0"); err != nil {
		t.Errorf("at the same address: %v", err)
	}
}

// Two identities cannot use one port of one address: the later one is refused, and the audit log
// names both.
func TestConflictingRegistrations(t *testing.T) {
	t.Parallel()
	template := func(account string, ports map[string]uint32) *networking.WorkloadGroup {
		return &networking.WorkloadGroup{Template: &networking.WorkloadEntry{ServiceAccount: account, Ports: ports}}
	}
	http, admin := map[string]uint32{"http": 8080}, map[string]uint32{"http": 9090}
	entry := func(address, account string, ports map[string]uint32) *networking.WorkloadEntry {
		return &networking.WorkloadEntry{Address: address, ServiceAccount: account, Ports: ports}
	}
	type ask struct{ group, address, network string }
	for name, tc := range map[string]struct {
		entry *networking.WorkloadEntry // bank/other, of an operator
		first ask                       // a workload of shop/web that is registered already
		next  ask
		want  string // in the error; empty: it registers
	}{
		"nobody else":                {nil, ask{}, ask{"api", "10.0.0.1", ""}, ""},
		"an entry":                   {entry("10.0.0.1", "web", nil), ask{}, ask{"api", "10.0.0.1", ""}, "WorkloadEntry bank/other of service account bank/web uses it"},
		"an entry without account":   {entry("10.0.0.1", "", nil), ask{}, ask{"api", "10.0.0.1", ""}, "of service account bank/default uses it"},
		"an entry in another form":   {entry("::ffff:10.0.0.1", "web", nil), ask{}, ask{"api", "10.0.0.1", ""}, "bank/other"},
		"an entry of another port":   {entry("10.0.0.1", "web", admin), ask{}, ask{"http", "10.0.0.1", ""}, ""},
		"an entry of all ports":      {entry("10.0.0.1", "web", nil), ask{}, ask{"http", "10.0.0.1", ""}, "(ports [8080])"},
		"an entry elsewhere":         {entry("10.0.0.2", "web", nil), ask{}, ask{"api", "10.0.0.1", ""}, ""},
		"an entry of a host":         {entry("api.example", "web", nil), ask{}, ask{"api", "10.0.0.1", ""}, ""},
		"a registration":             {nil, ask{"web", "10.0.0.1", ""}, ask{"api", "10.0.0.1", ""}, "workload shop/web-10.0.0.1 of service account shop/web uses it"},
		"a registration elsewhere":   {nil, ask{"web", "10.0.0.2", ""}, ask{"api", "10.0.0.1", ""}, ""},
		"of the same identity":       {nil, ask{"web", "10.0.0.1", ""}, ask{"other", "10.0.0.1", ""}, ""},
		"a registration, same port":  {nil, ask{"webhttp", "10.0.0.1", ""}, ask{"http", "10.0.0.1", ""}, "shop/webhttp-10.0.0.1"},
		"a registration, other port": {nil, ask{"webadmin", "10.0.0.1", ""}, ask{"http", "10.0.0.1", ""}, ""},
		"one network is not known":   {nil, ask{"web", "10.0.0.1", "n1"}, ask{"api", "10.0.0.1", ""}, "shop/web-10.0.0.1-n1"},
		"another network":            {nil, ask{"web", "10.0.0.1", "n1"}, ask{"api", "10.0.0.1", "n2"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, rt := newAuthority(t), newRuntime(t)
			refused := make(chan audit.Event, 1)
			p := newSecurePlane(t, a, func(c *xds.Config) {
				c.Runtime, c.Audit = rt,
					func(e audit.Event) { refused <- e }
			})
			all := groups()
			all[config.Key{Kind: config.WorkloadGroup, Namespace: "shop", Name: "http"}] = template("api", http)
			all[config.Key{Kind: config.WorkloadGroup, Namespace: "shop", Name: "webhttp"}] = template("web", http)
			all[config.Key{Kind: config.WorkloadGroup, Namespace: "shop", Name: "webadmin"}] = template("web", admin)
			if tc.entry != nil {
				all[config.Key{Kind: config.WorkloadEntry, Namespace: "bank", Name: "other"}] = tc.entry
			}
			p.publishObjects(all)
			connects := func(cert *tls.Certificate, as ask) (*line, error) {
				l := call(t, p, cert)
				return l, l.connects(node(t, map[string]any{"AUTO_REGISTER_GROUP": as.group, "INSTANCE_IPS": as.address,
					"NETWORK": as.network}))
			}
			var first *line
			if tc.first != (ask{}) {
				var err error
				if first, err = connects(a.web(), tc.first); err != nil {
					t.Fatal(err)
				}
			}
			api := a.issue("shop", "api", time.Hour, time.Now())
			cert := &api
			if tc.next.group == "other" {
				cert = a.web()
			}
			_, err := connects(cert, tc.next)
			if tc.want == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if e := <-refused; e.Actor != "spiffe://cluster.local/ns/shop/sa/api" ||
				!strings.Contains(e.Reason, tc.want) {
				t.Errorf("recorded: %+v", e)
			}
			if first == nil {
				return
			}
			first.hang()
			eventually(t, func() string {
				for key, r := range rt.Registrations().All() {
					if r.Session == "" {
						return fmt.Sprint(rt.Remove(t.Context(), key, "")) // the grace has ended
					}
				}
				if n := rt.Registrations().Len(); n > 0 {
					return fmt.Sprintf("%d are registered", n)
				}
				return ""
			})
			if _, err := connects(&api, tc.next); err != nil {
				t.Errorf("the address is free: %v", err)
			}
		})
	}
}

// A router stands before its own ports: nothing has to be redirected to it.
func TestRouterIsNotBypassed(t *testing.T) {
	t.Parallel()
	a, rt, p := registering(t)
	n := node(t, map[string]any{"AUTO_REGISTER_GROUP": "web", "INSTANCE_IPS": "10.1.1.1", "INTERCEPTION_MODE": "NONE"})
	n.Id = strings.Replace(n.Id, "sidecar~", "router~", 1)
	if err := call(t, p, a.web()).connects(n); err != nil {
		t.Fatal(err)
	}
	r := rt.Registrations().At(registry.RegistrationKey{Namespace: "shop", Group: "web", Name: "web-10.1.1.1"})
	if r == nil || r.Unintercepted {
		t.Errorf("registered %+v", r)
	}
}

// bundle is the trusted authorities of agents.
func bundle(root string) *resource.Resource {
	return resource.New(xds.ProxyConfigType, "trust-bundle", nil, func() []byte {
		return resource.Encode(&meshconfig.ProxyConfig{CaCertificatesPem: []string{root}})
	})
}
