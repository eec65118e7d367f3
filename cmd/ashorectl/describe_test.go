package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

func (*fake) Describe(_ context.Context, q admin.DescribeQuery) (admin.Description, error) {
	all := fakeServices()
	if q.Service != all[0].Host && q.Workload == "" {
		return admin.Description{}, admin.NewError(admin.ErrNotFound, "no service %s", q.Service)
	}
	return admin.Description{Services: all[:1],
		Objects: []admin.AppliedObject{{Place: admin.Place{Object: "VirtualService shop/web", File: "a.yaml", Line: 4}, Effect: "routes requests for web"}},
		Workloads: []admin.WorkloadPolicies{{At: []string{"shop/web-1:80", "shop/web-2:80"}, MutualTLS: "STRICT, by PeerAuthentication shop/p",
			Policies: []string{"AuthorizationPolicy shop/a", "Telemetry shop/t"}}}}, nil
}

// A description has everything that applies, and the problems that name it.
func TestDescribeService(t *testing.T) {
	t.Parallel()
	socket := serve(t, &fake{problems: []feed.Problem{
		{Severity: feed.Warning, File: "a.yaml", Object: "AuthorizationPolicy shop/a", Text: "odd"},
		{Severity: feed.Warning, File: "b.yaml", Object: "AuthorizationPolicy shop/ab", Text: "another one"}}})
	host := fakeServices()[0].Host
	code, out, errOut := result(t, "--socket", socket, "describe", "service", host)
	if code != 0 {
		t.Fatalf("exit code %d, %s", code, errOut)
	}
	_, rest, _ := strings.Cut(out, "OBJECT")
	const want = `                   EFFECT                   READ FROM
VirtualService shop/web  routes requests for web  a.yaml:4

WORKLOAD                      MUTUAL TLS                          POLICIES
shop/web-1:80, shop/web-2:80  STRICT, by PeerAuthentication shop/p  AuthorizationPolicy shop/a, Telemetry shop/t

WARNING a.yaml
  AuthorizationPolicy shop/a
  odd
`
	if d := cmp.Diff(squeeze(want), squeeze(rest)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if !strings.HasPrefix(out, "SERVICE") || !strings.Contains(out, host) {
		t.Errorf("got %s", out)
	}
	for _, name := range []string{"db", "DB.service", "shop/db"} {
		if _, short, errOut := result(t, "--socket", socket, "describe", "service", name); short != out {
			t.Errorf("%s: got %s%s, want\n%s", name, short, errOut, out)
		}
	}
	if _, out, _ := result(t, "--socket", socket, "describe", "workload", "web-1.shop", "-o", "json"); !strings.Contains(out, `"mutualTLS": "STRICT`) {
		t.Errorf("a workload: %s", out)
	}
}

// Kinds and fields are explained by the comments of Istio's API, and refused fields with the reason.
func TestExplainKind(t *testing.T) {
	t.Parallel()
	for args, want := range map[string][]string{
		"virtualservice":            {"KIND:   VirtualService (networking.istio.io/v1)\nFIELD:  spec <VirtualService>\n", "\n  hosts <[]string>\n"},
		"vs.spec.http[0].retries":   {"FIELD:  spec.http.retries <HTTPRetry>", "  attempts <int32>\n    Number of retries", "  retryRemoteLocalities <bool>"},
		"dr.trafficPolicy.tls.mode": {"<DISABLE|SIMPLE|MUTUAL|ISTIO_MUTUAL>"},
		"vs.http.match.uri.exact":   {"exact string match"},
		"se.endpoints.labels":       {"<map[string]string>"},
		"vs.http.fault.delay":       {"  exponentialDelay <Duration>\n    REFUSED: a delay that grows is not supported yet: use fixedDelay"},
		"vs.http.match":             {"  withoutHeaders <map[string]StringMatch>\n    DIFFERS: a header with an empty value counts as missing"},
		"ap.rules -o json":          {`"kind": "AuthorizationPolicy"`, `"type": "[]Rule"`},
	} {
		code, out, errOut := result(t, append([]string{"explain"}, strings.Fields(args)...)...)
		for _, w := range want {
			if code != 0 || !strings.Contains(out, w) {
				t.Errorf("%s: exit code %d, no %q in %s%s", args, code, w, out, errOut)
			}
		}
	}
	var path, why string
	for _, k := range config.Kinds() {
		if k.Supported && why == "" {
			path, why = refusedField(k.NewSpec().ProtoReflect().Descriptor(), string(k.Kind), nil)
		}
	}
	if _, out, _ := result(t, "explain", path, "-o", "json"); why == "" || !strings.Contains(out, `"refused": "`+why) {
		t.Errorf("%s is refused (%s), and explained as %s", path, why, out)
	}
	if text := (explainedField{Refused: "why", Description: "What."}).description("  "); text != "  REFUSED: why. What.\n" {
		t.Errorf("got %q", text)
	}
	if _, out, _ := result(t, "explain"); !strings.Contains(out, "explain request") || !strings.Contains(out, "explain vs.http.retries") {
		t.Errorf("the help: %s", out)
	}
}

// refusedField returns the path of a refused field of a message, and the reason; empty: there is none.
func refusedField(m protoreflect.MessageDescriptor, path string, seen []protoreflect.FullName) (at, why string) {
	for i := range m.Fields().Len() {
		fd := m.Fields().Get(i)
		at := path + "." + fd.JSONName()
		if why := config.Unsupported(fd); why != "" {
			return at, why
		}
		inner := messageOf(fd)
		if inner == nil || slices.Contains(seen, inner.FullName()) {
			continue
		}
		if at, why := refusedField(inner, at, append(seen, inner.FullName())); why != "" {
			return at, why
		}
	}
	return "", ""
}
