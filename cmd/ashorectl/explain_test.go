package main

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// Route has one destination without a cluster, one whose policies deny, one that closes connections
// without a certificate, and one outside the mesh.
func (*fake) Route(_ context.Context, q admin.RequestQuery) (admin.RoutedRequest, error) {
	out := admin.RoutedRequest{Proxy: "sidecar~10.0.0.1~web-1.shop~x", Identity: "spiffe://td/ns/shop/sa/web", Hops: []admin.Hop{}}
	switch {
	case q.Headers["x-canary"] == "yes":
		out.Hops = []admin.Hop{{Route: "canary", Code: 418, Reason: "the route has a direct response"}}
	case q.Host == "db.service.consul" && q.Port == 82: // its policies are not known
		out.Hops = []admin.Hop{
			{Route: "tcp", Cluster: "outbound|82||db.service.consul", Weight: 50, Endpoints: 1, TLS: "plaintext", Host: q.Host},
			{Route: "tcp", Cluster: "outbound|80|v9|db.service.consul", Weight: 50, Code: 503, Flags: "NC", Reason: "no such cluster"}}
	case q.Port == 83:
		out.Hops = []admin.Hop{{Route: "tcp", Cluster: "outbound|83||db.service.consul", Weight: 100, Endpoints: 1,
			TLS: "plaintext", Host: q.Host, Connection: true}}
	case q.Port != 80:
		return out, nil
	case q.Path == "/subsets":
		hop := admin.Hop{Route: "main", Cluster: "outbound|80|v1|db.service.consul", Weight: 50, Endpoints: 1, Addresses: []string{"10.0.0.1:80"}}
		out.Hops = append(out.Hops, hop)
		hop.Cluster, hop.Addresses = "outbound|80|v2|db.service.consul", []string{"10.0.0.2:80"}
		out.Hops = append(out.Hops, hop)
	case q.Host == "db.service.consul":
		out.Hops = []admin.Hop{
			{Route: "80, virtual host db, route canary", If: "the header x-canary", Cluster: "outbound|80|v9|db.service.consul", Weight: 100,
				Code: 503, Flags: "NC", Reason: "the proxy has no such cluster"},
			{Route: "80, virtual host db, route main", Options: "timeout 2s", Cluster: "outbound|80||db.service.consul", Weight: 75,
				Endpoints: 2, TLS: "mutual TLS", Host: "db.service.consul", Path: q.Path},
			{Route: "80, virtual host db, route main", Cluster: "outbound|81||db.service.consul", Weight: 25,
				Endpoints: 1, TLS: "plaintext", Host: "db.service.consul", Path: q.Path},
		}
	default:
		out.Hops = []admin.Hop{{Route: "80, virtual host web, route main", Cluster: "outbound|80||web.service.consul", Weight: 100,
			Endpoints: 1, TLS: "TLS", Host: q.Host, Path: q.Path}}
	}
	return out, nil
}

func (*fake) LogLevel(_ context.Context, q admin.LogLevel) (admin.LogLevel, error) {
	if q.Level == "" {
		q.Level = "info"
	}
	return q, nil
}

// What a proxy does, the health of a destination and its policies make an outcome: a status, or who
// answers.
func TestExplainRequest(t *testing.T) {
	t.Parallel()
	socket := serve(t, &fake{})
	const head, tail = "sidecar~10.0.0.1~web-1.shop~x (spiffe://td/ns/shop/sa/web): ", `
Envoy may also have ejected endpoints. Its access log shows the actual response;
ashorectl explain flags explains its response flags.
`
	for args, want := range map[string]string{
		"web-1.shop db.service.consul --method post --path /items": head + `POST db.service.consul:80/items

503 NC: the proxy has no such cluster
  only if    the header x-canary matches
  route      80, virtual host db, route canary
  cluster    outbound|80|v9|db.service.consul (100 %)
  endpoints  0 endpoints in use; of the service 0 healthy, 0 unhealthy, 0 draining

403: rule 0 denies it
  route      80, virtual host db, route main
  options    timeout 2s
  cluster    outbound|80||db.service.consul (75 %)
  endpoints  2 endpoints in use; of the service 0 healthy, 0 unhealthy, 0 draining
  TLS        mutual TLS
  policy     DENIED at shop/db-1:80: rule 0 denies it

503 UC: shop/strict is STRICT
  route      80, virtual host db, route main
  cluster    outbound|81||db.service.consul (25 %)
  endpoints  1 endpoint in use; of the service 0 healthy, 0 unhealthy, 0 draining
  TLS        plaintext
  policy     DENIED at shop/db-1:81: shop/strict is STRICT
` + tail,
		"shop/web web.service.consul": head + `GET web.service.consul:80/

the application answers
  route      80, virtual host web, route main
  cluster    outbound|80||web.service.consul (100 %)
  endpoints  1 endpoint in use; of the service 1 healthy, 0 unhealthy, 1 draining
  TLS        TLS
` + tail,
		"shop/web db.service.consul:83": head + `GET db.service.consul:83/

the server closes the connection: a policy denies it
  route      tcp
  cluster    outbound|83||db.service.consul (100 %)
  endpoints  1 endpoint in use; of the service 0 healthy, 0 unhealthy, 0 draining
  TLS        plaintext
  policy     DENIED at shop/db-1:83: a policy denies it
` + tail,
		"shop/web db.service.consul:82": head + `GET db.service.consul:82/

the application answers, unless a policy denies it
  route      tcp
  cluster    outbound|82||db.service.consul (50 %)
  endpoints  1 endpoint in use; of the service 0 healthy, 0 unhealthy, 0 draining
  TLS        plaintext
  policy     unknown: nothing is known of "db.service.consul:82"

503 NC: no such cluster
  route      tcp
  cluster    outbound|80|v9|db.service.consul (50 %)
  endpoints  0 endpoints in use; of the service 0 healthy, 0 unhealthy, 0 draining
` + tail,
		"web-1.shop db.service.consul --header X-Canary=yes": head + `GET db.service.consul:80/

418: the route has a direct response
  route      canary
` + tail,
		"shop/web who:99": head + `GET who:99/

The proxy has no route and no cluster for this host and port, and does not intercept connections.
Is the port right, the service declared and visible (exportTo, Sidecar)? ashorectl get services
` + tail,
	} {
		code, out, errOut := result(t, append([]string{"--socket", socket, "explain", "request"}, strings.Fields(args)...)...)
		if d := cmp.Diff(want, out); code != 0 || d != "" {
			t.Errorf("%s: exit code %d, %s (-want +got):\n%s", args, code, errOut, d)
		}
	}
}

// A URL is no host.
func TestExplainURL(t *testing.T) {
	t.Parallel()
	code, _, errOut := result(t, "explain", "request", "web-1.shop", "http://backend.internal:8000/")
	if code != exitUsage || !strings.Contains(errOut, "want HOST or HOST:PORT, not a URL; --path has the path") {
		t.Errorf("exit code %d, %s", code, errOut)
	}
}

// Each subset has the result of its own endpoints.
func TestExplainSubsets(t *testing.T) {
	t.Parallel()
	_, out, errOut := result(t, "--socket", serve(t, &fake{}), "explain", "request", "web-1.shop", "db.service.consul", "--path", "/subsets")
	if !strings.Contains(out, "\n403: v1 is denied\n  route      main\n  cluster    outbound|80|v1|") ||
		!strings.Contains(out, "\nthe application answers\n  route      main\n  cluster    outbound|80|v2|") {
		t.Errorf("got\n%s%s", out, errOut)
	}
}

// Flags are explained all, or those that are asked for.
func TestExplainFlags(t *testing.T) {
	t.Parallel()
	_, out, _ := result(t, "explain", "flags", "uf,URX")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[1], "UF    503     no connection") ||
		!strings.HasPrefix(lines[2], "URX ") {
		t.Errorf("got\n%s", out)
	}
	if _, out, _ := result(t, "explain", "flags"); strings.Count(out, "\n") != len(responseFlags())+1 {
		t.Errorf("got\n%s", out)
	}
	if code, _, errOut := result(t, "explain", "flags", "XX"); code != exitUsage || !strings.Contains(errOut, `unknown flag "XX": known are - UH NC`) {
		t.Errorf("exit code %d, %s", code, errOut)
	}
}

// The level of the log is shown and set.
func TestAdminLog(t *testing.T) {
	t.Parallel()
	socket := serve(t, &fake{})
	for args, want := range map[string]string{"admin log": "info\n", "admin log --level debug": "debug\n"} {
		if code, out, errOut := result(t, append([]string{"--socket", socket}, strings.Fields(args)...)...); code != 0 || out != want {
			t.Errorf("%s: exit code %d, %q, %q; want %q", args, code, out, errOut, want)
		}
	}
}
