package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is an ashored with two proxies, one of which rejected a listener.
type fake struct {
	problems []feed.Problem
	others   []string // names of further proxies
	// prometheus is the setting metrics.prometheus.
	prometheus string
}

func (*fake) Version() admin.Version { return build.Info{Version: "v1.2.3", Commit: "abc", Go: "go1"} }

func (f *fake) Status() admin.Status {
	now := time.Now()
	s := admin.Status{
		Version: f.Version(), Started: now.Add(-3 * time.Minute), Ready: true,
		Sources: []feed.SourceStatus{{Name: "file:/good", Synced: true},
			{Name: "file:/old", Synced: true, Stale: 2, Retained: 1}, {Name: "store", Synced: false}},
		Config: admin.ConfigStatus{Objects: map[string]int{"VirtualService": 1, "ServiceEntry": 3}, Services: 3,
			Endpoints: 7, Errors: 1},
		Proxies: []admin.ProxyStatus{
			{ID: "api-1.shop", Kind: "sidecar", Namespace: "shop", Peer: "10.0.0.2:4", Connected: now.Add(-time.Hour), Delta: true,
				Types: []admin.TypeStatus{{Type: "lds", State: "SYNCED", Latest: true, Resources: 2, AcknowledgedAt: now},
					{Type: "cds", State: "STALE", Resources: 5, InFlight: 1}, {Type: "rds", State: "NOT_SENT", Resources: 3}}},
			{ID: "web-1.shop", Kind: "sidecar", Namespace: "shop", Peer: "10.0.0.1:4", Connected: now.Add(-72 * time.Hour),
				Types: []admin.TypeStatus{{Type: "cds", State: "SYNCED", Everything: true, Resources: 1, Latest: true, AcknowledgedAt: now.Add(-5 * time.Second)},
					{Type: "eds", State: "SYNCED", Latest: true}, {Type: "lds", State: "ERROR", Resources: 2, Subscribed: 3, Latest: true, Rejections: 2,
						Rejected: []admin.Rejection{{Time: now.Add(-5 * time.Second), Resource: "0.0.0.0_80",
							Error: "unknown filter"}}}}},
		},
	}
	s.Prometheus = f.prometheus
	for _, id := range f.others {
		s.Proxies = append(s.Proxies, admin.ProxyStatus{ID: id, Types: []admin.TypeStatus{}})
	}
	return s
}

func (f *fake) Problems() []feed.Problem { return f.problems }

func (f *fake) Objects(_ context.Context, q admin.ObjectQuery) ([]admin.Object, error) {
	if q.Store {
		return f.stored(q)
	}
	if q.Kind != "vs" {
		return nil, admin.NewError(admin.ErrInvalid, "unknown kind %q", q.Kind)
	}
	o := admin.Object{APIVersion: "networking.istio.io/v1", Kind: "VirtualService",
		Metadata: admin.Metadata{Name: "web", Namespace: "shop"},
		Spec:     json.RawMessage(`{"hosts":["web"],"http":[{"name":"123"}]}`), Origin: admin.Origin{File: "web.yaml",
			Line: 4}}
	return []admin.Object{o}, nil
}

// shortDir is a folder whose path fits into a socket's address.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// always returns the handler of a call without a request.
func always[A any](f func() A) func(context.Context, admin.None) (A, error) {
	return func(context.Context, admin.None) (A, error) { return f(), nil }
}

func (f *fake) routes() []admin.Route {
	return []admin.Route{
		admin.Handle(admin.CallVersion, admin.Viewer, always(f.Version)),
		admin.Handle(admin.CallStatus, admin.Viewer, always(f.Status)),
		admin.Handle(admin.CallProblems, admin.Viewer, always(f.Problems)),
		admin.Handle(admin.CallObjects, admin.Viewer, f.Objects),
		admin.Handle(admin.CallDump, admin.Operator, f.Dump),
		admin.Handle(admin.CallDescribe, admin.Viewer, f.Describe),
		admin.Handle(admin.CallExplain, admin.Viewer, f.Explain),
		admin.Handle(admin.CallHistory, admin.Viewer, f.History),
		admin.Handle(admin.CallWrite, admin.Operator, f.Write),
		admin.Handle(admin.CallPreview, admin.Viewer, f.Preview),
		admin.Handle(admin.CallCreateToken, admin.Operator, f.CreateToken),
		admin.Handle(admin.CallTokens, admin.Viewer, f.ListTokens),
		admin.Handle(admin.CallRevokeToken, admin.Operator, f.RevokeToken),
		admin.Handle(admin.CallAuthority, admin.Viewer, f.ShowAuthority),
		admin.Handle(admin.CallRotate, admin.Admin, f.RotateAuthority),
		admin.Handle(admin.CallCreateReplicaToken, admin.Admin, f.CreateReplicaToken),
		admin.Handle(admin.CallWorkloads, admin.Viewer, f.ListWorkloads),
		admin.Handle(admin.CallRevoke, admin.Operator, f.Revoke),
		admin.Handle(admin.CallRestore, admin.Operator, f.Restore),
		admin.Handle(admin.CallServices, admin.Viewer, f.Services),
		admin.Handle(admin.CallRoute, admin.Operator, f.Route),
		admin.Handle(admin.CallLogLevel, admin.Operator, f.LogLevel),
		admin.Handle(admin.CallAudit, admin.Operator, f.Tail),
	}
}

// serve starts the fake and returns its socket.
func serve(t *testing.T, f *fake) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "admin.sock")
	l, err := admin.Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- admin.Serve(ctx, admin.Config{Listener: l, Routes: f.routes(), Log: testlog.New(t),
			Role: func(admin.Peer) admin.Role { return admin.Admin }})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return path
}

// result runs one command line.
func result(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, &o, &e)
	return code, o.String(), e.String()
}

func TestCommands(t *testing.T) {
	t.Parallel()
	socket := serve(t, &fake{})
	for _, tc := range []struct {
		name string
		args string
		code int
		out  string // all of it
	}{
		{"status", "status", 0, `ashored v1.2.3, up 3m, ready
4 objects (3 ServiceEntry, 1 VirtualService), 3 services, 7 endpoints
1 error, 0 warnings: see "ashorectl problems"
file:/old: an older version of 2 parts is active: see "ashorectl problems"
store: it has not been read yet

NAME        KIND     CDS     LDS     EDS     RDS       PEER        CONNECTED  AGENT  ENVOY
api-1.shop  sidecar  STALE   SYNCED  -       NOT SENT  10.0.0.2:4  1h         -      -
web-1.shop  sidecar  SYNCED  ERROR   SYNCED  -         10.0.0.1:4  3d         -      -

web-1.shop rejected lds 0.0.0.0_80 5s ago:
  unknown filter
`},
		{"problems, none", "problems", 0, "no problems\n"},
		{"problems for programs, none", "problems -o json", 0, "[]\n"},
		{"get", "get vs", 0, "NAMESPACE  NAME  READ FROM\nshop       web   web.yaml:4\n"},
		// One object is printed in the form of a file, and a string that looks like a number
		// stays a string.
		{"get yaml", "get vs shop/web -o yaml", 0, `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: web
  namespace: shop
spec:
  hosts:
    - web
  http:
    - name: "123"
`},
		{"describe", "describe vs shop/web", 0, `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: web
  namespace: shop
spec:
  hosts:
    - web
  http:
    - name: "123"

Read from: web.yaml:4

no problem names it
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := result(t, append(strings.Fields(tc.args), "--socket", socket)...)
			if code != tc.code || errOut != "" {
				t.Errorf("exit code %d, want %d; standard error %q", code, tc.code, errOut)
			}
			if d := cmp.Diff(tc.out, out); d != "" {
				t.Errorf("output (-want +got):\n%s", d)
			}
		})
	}
}

// One proxy has a row for each type.
func TestStatusOfOne(t *testing.T) {
	t.Parallel()
	_, out, _ := result(t, "proxy-status", "web-1.shop", "--socket", serve(t, &fake{}))
	for _, want := range []string{"state of the world",
		"TYPE  SUBSCRIBED  RESOURCES  ACKNOWLEDGED  REJECTED  STATE\n" +
			"cds   all         1          5s ago        0         SYNCED\neds   0           0          -             0         SYNCED\n" +
			"lds   3           2          -             1         ERROR", "web-1.shop rejected lds 0.0.0.0_80 5s ago:\n  unknown filter"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// Each mistake has a message on standard error and an exit code.
func TestMistakes(t *testing.T) {
	t.Parallel()
	socket := serve(t, &fake{})
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"frobnicate", 2, `unknown command "frobnicate"`},
		{"problem", 2, `unknown command "problem" for "ashorectl": did you mean "problems"?`},
		{"ca shw", 2, `unknown command "shw" for "ashorectl ca": did you mean "show"?`},
		{"rollout history", 2, `unknown command "rollout" for "ashorectl": did you mean "history" or "rollback"?`},
		{"create -f a.yaml", 2, `did you mean "apply"?`},
		{"kubectl get vs", 2, `unknown command "kubectl" for "ashorectl": leave the word out, and write what follows it`},
		{"x describe", 2, `unknown command "x" for "ashorectl": leave the word out`},
		{"install --set a=b", 2, "docs/install.md describes"},
		{"kube-inject", 2, `unknown command "kube-inject" for "ashorectl": nothing is injected`},
		{"tag", 2, `unknown command "tag" for "ashorectl": there are no revisions`},
		{"auth", 2, `unknown command "auth" for "ashorectl": did you mean "authz"?`},
		{"authn", 2, `unknown command "authn" for "ashorectl": did you mean "authz"?`},
		{"logs", 2, `unknown command "logs" for "ashorectl": did you mean "admin log"?`},
		{"wait", 2, `did you mean "proxy-status"?`},
		{"get pods", 2, `unknown kind "pods": "ashorectl workload list"`},
		{"edit pods shop/x", 2, `unknown kind "pods": "ashorectl workload list"`},
		{"delete pods x/y", 2, `unknown kind "pods": "ashorectl workload list"`},
		{"edit svc x/y", 2, `unknown kind "svc": registries and ServiceEntries define them`},
		{"explain meshconfig", 2, "docs/meshconfig.md describes its fields"},
		{"pc c web-1.shop --direction sideways", 2, "--direction sideways: want inbound, outbound"},
		{"pc l web-1.shop --type bogus", 2, "--type bogus: want HTTP, TCP, HTTP+TCP"},
		{"pc ep web-1.shop --status bogus", 2, "--status bogus: want HEALTHY, UNHEALTHY, DRAINING"},
		{"pc l web-1.shop --port abc", 2, "--port abc: want a port from 1 to 65535"},
		{"pc ep web-1.shop --address 999", 2, "--address 999: want an IP address"},
		{"diff -f /does/not/exist", 2, "/does/not/exist: no such file or directory"},
		{"explain vs.http.retriez", 2, `spec.http has no field "retriez": did you mean "retries"?`},
		{"explain vs.hosts.x", 2, "spec.hosts has no fields"},
		{"explain pod", 2, `unknown kind "pod"`},
		{"explain vs --frob", 2, "unknown flag: --frob"},
		{"describe service shop/", 1, `"shop/" does not name one service`},
		{"describe service other/db", 1, `the mesh knows no service "db"`},
		{"describe service nobody.example", 1, "the mesh knows no service \"nobody.example\""},
		{"proxy-config cluster web-1.shop --address 10.0.0.1", 2, "--address is not for cluster, which has --fqdn, --port"},
		{"proxy-config log nobody", 1, `no Envoy of nobody answers on this machine, and only Envoy itself knows this: on its machine run "ashore-agent proxy-log"`},
		{"explain request web-1.shop x:y", 2, "x:y: want HOST or HOST:PORT"},
		{"explain request web-1.shop x --path y", 2, "--path y: want a path that begins with /"},
		{"ca frobnicate", 2, `unknown command "frobnicate" for "ashorectl ca"`},
		{"completion foo", 2, `unknown command "foo" for "ashorectl completion"`},
		{"status --frob", 2, "unknown flag: --frob"},
		{"status --timeout x", 2, `invalid argument "x" for "--timeout" flag`},
		{"status --timeout -1s", 2, "--timeout -1s: want 0 or more"},
		{"status a", 2, `unknown command "a" for "ashorectl status": want ashorectl status`},
		{"proxy-status a b", 2, "accepts at most 1 arg(s), received 2: want ashorectl proxy-status [PROXY]"},
		{"status -o xml", 2, "-o xml: ashorectl status has table, json, yaml"},
		{"status -o wide", 2, "-o wide: ashorectl status has table, json, yaml"},
		{"pc c web-1.shop -o yamll", 2, "has table, json, yaml, short"},
		{"get", 2, "accepts between 1 and 2 arg(s), received 0: want ashorectl get KIND [NAME]"},
		{"get vs a/b -n c", 2, `namespace "a" in the name, and "c" in -n`},
		{"get nonsense", 2, `unknown kind "nonsense"`},
		{"proxy-config xyz web-1.shop", 2, `unknown type "xyz": want all, cluster, listener, route, endpoint, secret, ecds, `},
		{"join-token create", 2, "--group is missing"},
		{"join-token create --group a/b c", 2, `unexpected argument "c": write flags of "ashore-agent join" after "--"`},
		{"validate", 2, "name at least one file or folder with -f"},
		{"validate -f /does/not/exist", 2, "/does/not/exist: no such file or directory"},
		{"join-token create --group none/none", 1, "there is no WorkloadGroup none/none"},
		{"join-token revoke gone", 1, "no token gone"},
		{"proxy-status nobody", 1, `no proxy "nobody" is connected`},
		{"proxy-config all nobody", 1, "no proxy nobody"},
		{"proxy-config all web-1.shop --name zz", 1, "web-1.shop has no such resource: without filters all are listed"},
		{"status --socket /does/not/exist.sock", 1, "ashored is not running: nothing listens at the admin socket /does/not/exist.sock"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := result(t, append([]string{"--socket", socket}, strings.Fields(tc.args)...)...)
			if code != tc.code || !strings.HasPrefix(errOut, "ashorectl: ") || !strings.Contains(errOut, tc.want) {
				t.Errorf("exit code %d, want %d; standard error %q, want %q in it", code, tc.code, errOut, tc.want)
			}
			if out != "" {
				t.Errorf("standard output %q, want none", out)
			}
		})
	}
}

// --timeout bounds the wait for ashored.
func TestTimeout(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "admin.sock")
	l, err := admin.Listen(path, false) // and nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	code, _, errOut := result(t, "status", "--timeout", "20ms", "--socket", path)
	if want := "ashored did not answer at " + path + " within 20ms"; code != exitFailed || !strings.Contains(errOut, want) {
		t.Errorf("exit code %d, %q; want %d, %q", code, errOut, exitFailed, want)
	}
}

// Errors come first and make the exit code 1; warnings alone do not.
func TestProblems(t *testing.T) {
	t.Parallel()
	warning := feed.Problem{Severity: feed.Warning, File: "a.yaml", Line: 2, Object: "Gateway shop/gw", Field: "spec.servers[0]", Text: "odd"}
	wrong := feed.Problem{Severity: feed.Error, Source: "file:/etc", File: "b.yaml", Text: "not YAML", Stale: true}
	kept := feed.Problem{Severity: feed.Error, Source: "secrets", Stale: true,
		Text: "no key; what was read before stays in use"}
	for _, tc := range []struct {
		name string
		in   []feed.Problem
		code int
		out  string
	}{
		{"warning", []feed.Problem{warning}, 0, "WARNING a.yaml:2\n  Gateway shop/gw  spec.servers[0]\n  odd\n\n0 errors, 1 warning\n"},
		{"both", []feed.Problem{warning, wrong}, 1, "ERROR b.yaml\n  not YAML\n  The last good version stays active.\n\n" +
			"WARNING a.yaml:2\n  Gateway shop/gw  spec.servers[0]\n  odd\n\n1 error, 1 warning\n"},
		{"said already", []feed.Problem{kept}, 1, "ERROR secrets\n  no key; what was read before stays in use\n\n" +
			"1 error, 0 warnings\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := result(t, "problems", "--socket", serve(t, &fake{problems: tc.in}))
			if code != tc.code || errOut != "" {
				t.Errorf("exit code %d, want %d; standard error %q", code, tc.code, errOut)
			}
			if d := cmp.Diff(tc.out, out); d != "" {
				t.Errorf("output (-want +got):\n%s", d)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, out, errOut := result(t, "version", "--socket", serve(t, &fake{}))
	if code != 0 || errOut != "" || !strings.Contains(out, "ashored    v1.2.3 (abc) go1\n") {
		t.Errorf("exit code %d, output %q, standard error %q", code, out, errOut)
	}
}

// --version sends no request.
func TestVersionFlag(t *testing.T) {
	t.Parallel()
	code, out, errOut := result(t, "--version", "--socket", "/does/not/exist.sock")
	if want := "ashorectl " + build.Read().String() + "\n"; code != 0 || errOut != "" || out != want {
		t.Errorf("exit code %d, output %q, standard error %q; want %q", code, out, errOut, want)
	}
}

// Completion offers existing names.
func TestCompletion(t *testing.T) {
	t.Parallel()
	socket := serve(t, &fake{})
	for args, want := range map[string]string{
		"__complete pc all --socket " + socket + " ": "api-1.shop\nweb-1.shop\n",
		"__complete get ": "virtualservice\n",
		"__complete get vs --socket " + socket + " ":         "shop/web\n",
		"__complete get vs -n shop --socket " + socket + " ": "web\n",
		"__complete get vs web --socket " + socket + " ":     ":4\n",
		"__complete pc ":       "all\ncluster\nlistener\n",
		"__complete explain ":  "virtualservice\n",
		"__complete describe ": "service\nworkload\n",
		"__complete status --socket " + socket + "/none -o ": "table\nwide\njson\nyaml\n",
	} {
		if _, out, _ := result(t, strings.Split(args, " ")...); !strings.Contains(out, want) {
			t.Errorf("%s: %q, want %q in it", args, out, want)
		}
	}
}

// The socket of a development run in this folder, or above it, comes before the installed one.
func TestFindSocket(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	deep := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := findSocket(deep, "/installed"); err != nil || got != "/installed" {
		t.Errorf("without a development run: %q, %v; want /installed", got, err)
	}
	want := filepath.Join(dir, "a", ".ashore", "admin.sock")
	l, err := admin.Listen(want, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got, err := findSocket(deep, "/installed"); err != nil || got != want {
		t.Errorf("with a development run above: %q, %v; want %q", got, err, want)
	}
}

// Each help text is one line, usage, three examples and flags.
func TestHelp(t *testing.T) {
	t.Parallel()
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Name() == "help" || cmd.Name() == "completion" { // they are cobra's
			return
		}
		if n := len(strings.Split(cmd.Example, "\n")); cmd.Short == "" || cmd.Long != "" || n != 3 {
			t.Errorf("%s: short text %q, long text %q, %d examples", cmd.CommandPath(), cmd.Short, cmd.Long, n)
		}
		for _, c := range cmd.Commands() {
			check(c)
		}
	}
	check(newRoot())
}
