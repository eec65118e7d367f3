package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/agent/probe"
	"github.com/ashore-mesh/ashore/agent/relay"
	"github.com/ashore-mesh/ashore/internal/testenvoy"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// probed has the agent's prober take a probe of the group.
func probed(t *testing.T, a *Agent, p *networking.ReadinessProbe) probe.State {
	t.Helper()
	refused := a.prober.Set(p)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.prober.Run(ctx) }()
	eventually(t, "the probe is taken", func() error {
		if s := a.prober.State(); s.Refused != refused || s == (probe.State{}) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return a.prober.State()
}

func tcpProbe() *networking.ReadinessProbe {
	return &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_TcpSocket{
		TcpSocket: &networking.TCPHealthCheckConfig{Port: 8080}}}
}

func execProbe() *networking.ReadinessProbe {
	return &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_Exec{
		Exec: &networking.ExecHealthCheckConfig{Command: []string{"id"}}}}
}

// What is not well shows in its line, and with what to do.
func TestReport(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "cluster.local")
	now := time.Now()
	long := now.Add(-3 * time.Hour)
	for _, tc := range []struct {
		name  string
		state func(a *Agent, l *relay.Status)
		line  string
		want  string // state and text
		todo  string
	}{
		{"the control plane is away", func(_ *Agent, l *relay.Status) {
			*l = relay.Status{Since: long, Problem: "control plane a:1: nothing listens there"}
		}, "control plane", "bad none since 3h0m0s: control plane a:1: nothing listens there", ""},
		{"not accepted", func(_ *Agent, l *relay.Status) {
			err := status.Error(codes.Unauthenticated, "authentication required")
			*l = relay.Status{Since: now, Problem: relay.StreamError("a:1", err).Error()}
		}, "control plane", "bad none since ", "or join again"},
		{"an address in use", func(_ *Agent, l *relay.Status) {
			err := status.Error(codes.FailedPrecondition, "WorkloadEntry shop/db uses the address")
			*l = relay.Status{Since: long, Problem: relay.StreamError("a:1", err).Error()}
		}, "control plane", "bad none since 3h0m0s: control plane a:1: FailedPrecondition: WorkloadEntry shop/db uses " +
			"the address",
			"correct this in the agent's settings or in the mesh's configuration"},
		{"a wrong clock", func(_ *Agent, l *relay.Status) {
			*l = relay.Status{Since: now, Problem: dialError("a:1",
				serverError("its certificate begins at noon: set the clock")).Error()}
		}, "control plane", "bad none since ", "set the clock"},
		{"a stranger", func(_ *Agent, l *relay.Status) {
			*l = relay.Status{Since: now, Problem: dialError("a:1", serverError("another root")).Error()}
		}, "control plane", "bad none since ", "is not trusted: another root"},
		{"not connected", func(a *Agent, _ *relay.Status) {
			a.health.setApp(probe.Health{})
			a.health.setProxy(nil, true)
		}, "registration", "warn shop/web at 127.0.15.40, not reported: no control plane is connected; an existing " +
			"registration ends with its lease", ""},
		{"nothing ever came", func(_ *Agent, l *relay.Status) {
			*l = relay.Status{Since: now, Problem: "control plane a:1: nothing listens there"}
		}, "configuration", "bad none: no control plane has sent any since this agent started, and there is no copy on " +
			"disk", ""},
		{"the control plane went away", func(_ *Agent, l *relay.Status) {
			*l = relay.Status{Since: long, Confirmed: long, Problem: "control plane a:1: nothing listens there"}
		}, "configuration", "warn running on a copy from " + long.UTC().Format(time.RFC3339) + ", 3h0m0s ago", ""},
		{"a port that another program has", func(_ *Agent, l *relay.Status) {
			*l = relay.Status{Connected: "a:1",
				Rejected: []string{"Error adding/updating listener(s) 127.0.0.2_8080: cannot bind '127.0.0.2:8080': Address " +
					"already in use\n"}}
		}, "configuration", "bad Envoy refuses a part: Error adding/updating listener(s) 127.0.0.2_8080: cannot bind " +
			"'127.0.0.2:8080': Address already in use",
			"remove the cause"},
		{"a copy", func(_ *Agent, l *relay.Status) { *l = relay.Status{Since: now, Confirmed: long} },
			"configuration",
			"warn running on a copy from " + long.UTC().Format(time.RFC3339) + ", 3h0m0s ago", ""},
		{"a copy that is not used", func(_ *Agent, l *relay.Status) { *l = relay.Status{CacheRefused: "it is of another machine"} }, "configuration",
			"bad none: the copy on disk is not used: it is of another machine", ""},
		{"too many of its connections", func(_ *Agent, l *relay.Status) {
			err := status.Error(codes.ResourceExhausted, "this workload has 64 connections")
			*l = relay.Status{Since: long, Problem: relay.StreamError("a:1", err).Error()}
		}, "control plane", "bad none since 3h0m0s: control plane a:1: ResourceExhausted: this workload has 64 " +
			"connections", "another program uses a copy of this workload's identity"},
		{"a refused part", func(_ *Agent, l *relay.Status) {
			*l = relay.Status{Connected: "a:1", Rejected: []string{"bad listener"}}
		}, "configuration",
			"bad Envoy refuses a part: bad listener", "ashorectl status"},
		{"connected", func(_ *Agent, l *relay.Status) { *l = relay.Status{Connected: "a:1", Since: long} },
			"control plane", "ok a:1 since 3h0m0s ago", ""},
		{"live", func(_ *Agent, l *relay.Status) { *l = relay.Status{Connected: "a:1"} }, "configuration", "ok live", ""},
		{"renewal fails", func(a *Agent, _ *relay.Status) { a.certs.note(errors.New("no answer")) }, "certificate",
			"warn SERIAL ends in ", ""},
		{"a port past Envoy", func(a *Agent, _ *relay.Status) {
			a.setConfig(&meshconfig.ProxyConfig{ProxyMetadata: map[string]string{resource.BypassedPorts: "8080"}})
		}, "interception",
			"warn connections to port 8080 reach the application past Envoy: no mutual TLS and no policies there",
			"let the application listen on 127.0.0.1 alone"},
		{"an application that is not " +
			"well", func(a *Agent, _ *relay.Status) { a.health.setApp(probe.Health{Reason: "connection refused"}) },
			"registration",
			"bad shop/web at 127.0.15.40, not among the endpoints: connection refused", ""},
		{"an Envoy that is not ready", func(a *Agent, _ *relay.Status) {
			a.health.setApp(probe.Health{})
			a.health.setProxy(errors.New("it starts"), true)
		}, "registration", "bad shop/web at 127.0.15.40, not among the endpoints: the proxy is not ready: it starts", ""},
		{"a group's probe that is not used", func(a *Agent, _ *relay.Status) {
			a.health.setApp(probe.Health{Reason: probed(t, a, execProbe()).Refused.Error()})
		}, "registration", "bad shop/web at 127.0.15.40, not among the endpoints: the probe of the WorkloadGroup is not " +
			"used: it runs a command", "set probe.allowGroupExec"},
		{"a group's probe that is not used beside one that was", func(a *Agent, l *relay.Status) {
			*l = relay.Status{Connected: "a:1"}
			probed(t, a, tcpProbe())
			probed(t, a, execProbe())
			a.health.setApp(probe.Health{})
			a.health.setProxy(nil, true)
		}, "registration", "warn shop/web at 127.0.15.40, healthy by the previous probe: the probe of the WorkloadGroup " +
			"is not used: it runs a command", ""},
		{"probed by its group", func(a *Agent, l *relay.Status) {
			*l = relay.Status{Connected: "a:1"}
			probed(t, a, tcpProbe())
			a.health.setApp(probe.Health{})
			a.health.setProxy(nil, true)
		}, "registration", "ok shop/web at 127.0.15.40, healthy; probed as its group says, by a TCP connection to " +
			"127.0.15.40:8080", ""},
		{"a port that is not served", func(a *Agent, l *relay.Status) {
			*l = relay.Status{Connected: "a:1"}
			a.health.setApp(probe.Health{Ports: "9000=closed"})
			a.health.setProxy(nil, true)
		}, "registration", "warn shop/web at 127.0.15.40, healthy; not served: 9000", "start what serves these ports"},
		{"not probed", func(*Agent, *relay.Status) {}, "registration", "ok shop/web at 127.0.15.40, not among the " +
			"endpoints yet: its first check is not done", ""},
		{"Envoy is away", func(*Agent, *relay.Status) {}, "envoy", "bad does not answer, restarts 0: ask Envoy: ",
			"see its log"},
		{"the disk", func(*Agent, *relay.Status) {}, "disk", "ok ", ""},
	} {
		t.Run(tc.name, func(t *testing.T) { // at once: what is hours old is not to grow older while it waits its turn
			k := kept(t, m, time.Hour)
			var l relay.Status
			s := Default()
			s.State, s.Workload.Name, s.Workload.Namespace, s.Workload.Group = k.store.dir, "web-1", "shop", "web"
			s.Workload.Addresses, s.XDS.Addresses, s.Envoy.Path = []string{"127.0.15.40"}, []string{"a:1"}, testenvoy.Path(t)
			if err := s.Complete(); err != nil {
				t.Fatal(err)
			}
			a, err := New(Config{Settings: s, Log: testlog.New(t)})
			if err != nil {
				t.Fatal(err)
			}
			tc.state(a, &l)
			r := a.report(t.Context(), l)
			var text strings.Builder
			if err := r.Write(&text); err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll(tc.want, "SERIAL", a.certs.Identity().Serial())
			found := false
			for _, line := range r.Lines {
				found = found || line.Name == tc.line && strings.HasPrefix(line.State+" "+line.Text, want)
			}
			if strings.Contains(text.String(), "\n\n") || strings.Count(text.String(),
				"\n") != len(r.Lines)+len(todos(r)) {
				t.Errorf("a line is not one:\n%s", text.String())
			}
			if !found || r.Well || tc.todo != "" && !strings.Contains(text.String(), tc.todo) {
				t.Errorf("want %q %q, to do %q; got:\n%s", tc.line, want, tc.todo, text.String())
			}
		})
	}
}

// todos returns the remedies of all lines.
func todos(r *Report) (out []string) {
	for _, l := range r.Lines {
		if l.Todo != "" {
			out = append(out, l.Todo)
		}
	}
	return out
}

// The status of a certificate at other times.
func TestReportCertificate(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "cluster.local")
	id := m.identity(t, web(), 24*time.Hour)
	joined := Joined{Version: 1, Group: "shop/web", At: time.Now(), Renewed: time.Now()}
	away := Renewal{Err: errors.New("away"), Tries: 3}
	refused := Renewal{Err: errors.Join(&RefusedError{Address: "a:1",
		Text: "expired"}), Tries: 3}
	replaced := Renewal{Err: &RefusedError{Address: "a:1",
		Text: "another machine joined under the name x"}, Tries: 1}
	for _, tc := range []struct {
		name        string
		after       time.Duration
		n           Renewal
		state, text string
		todo        string
	}{
		{"new", time.Hour, Renewal{Due: time.Now().Add(10 * time.Hour)}, stateOK,
			" ends in 23h0m0s, renewed 1h0m0s ago, the next time in 9h0m0s", ""},
		{"from disk", time.Hour, Renewal{}, stateOK, " ends in 23h0m0s, renewed 1h0m0s ago", ""},
		{"renewal fails", 15 * time.Hour, away, stateWarn, " ends in 9h0m0s, not renewed, tries 3: away", ""},
		{"soon over", 20 * time.Hour, away, stateBad, " ends in 4h0m0s, not renewed, tries 3: away",
			"make the control plane reachable"},
		{"over", 72 * time.Hour, away, stateBad, " ended 2 days ago, not renewed, tries 3: away",
			"make a control plane reachable: it renews a certificate up to 7 days"},
		{"over and refused", 72 * time.Hour, refused, stateBad, " ended 2 days ago, not renewed, tries 3: control plane " +
			"a:1 refuses: expired", "join again"},
		{"refused", time.Hour, refused, stateBad, " ends in 23h0m0s, not renewed, tries 3: control plane a:1 refuses: " +
			"expired", "join again"},
		{"replaced", time.Hour, replaced, stateBad, " ends in 23h0m0s, not renewed, tries 1: control plane a:1 refuses: " +
			"another machine joined under the name x", "join again"},
		{"its group has gone", time.Hour, Renewal{Err: (&authority{}).refusal("a:1", status.Error(codes.FailedPrecondition,
			"no group")), Tries: 1}, stateBad, " ends in 23h0m0s, not renewed, tries 1: control plane a:1 refuses: no " +
			"group; make sure that the WorkloadGroup exists", ""},
		{"over while no agent ran", 72 * time.Hour, Renewal{}, stateBad, " ended 2 days ago", "let the agent run"},
		{"before its time", -72 * time.Hour, Renewal{}, stateBad, " begins in 2 days by this machine's clock",
			"set the clock"},
	} {
		r := &Report{}
		reportIdentity(r, id, joined, tc.n, time.Now().Add(tc.after))
		if l := r.Lines[1]; l.State != tc.state || !strings.Contains(l.Text, id.Serial()+tc.text) ||
			!strings.Contains(strings.Join(todos(r), "\n"), tc.todo) {
			t.Errorf("%s: %+v, to do %q; want %s %q, %q", tc.name, l, todos(r), tc.state, tc.text, tc.todo)
		}
	}
}

// A disk that takes nothing is named, with what to do.
func TestDiskError(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"keep the identity: write x: no space left on device: the disk is full; make room and run this " +
			"again": fmt.Errorf("write x: %w", syscall.ENOSPC),
		"the disk is full":             fmt.Errorf("write x: %w", syscall.EDQUOT),
		"the file system is read-only": fmt.Errorf("write x: %w", syscall.EROFS),
		"this user may not write there; run as root, or set another folder (setting state, or " +
			"--state)": &os.PathError{Op: "open", Path: "x", Err: syscall.EACCES},
	} {
		if got := diskError("keep the identity", err); !strings.Contains(got.Error(), want) ||
			!errors.Is(got, errors.Unwrap(err)) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A workload is an endpoint when its proxy is ready and its application is well, and never again
// once it is about to end.
func TestHealthReporter(t *testing.T) {
	t.Parallel()
	var got []probe.Health
	v := &healthReporter{report: func(h probe.Health) { got = append(got, h) }, proxy: errStarting}
	v.setApp(probe.Health{})
	v.setProxy(nil, false)
	v.setProxy(nil, true)
	v.setProxy(nil, true)
	v.setApp(probe.Health{Reason: "503"})
	v.setProxy(errors.New("away"), true)
	v.setApp(probe.Health{})
	v.setProxy(nil, true)
	v.end()
	v.setApp(probe.Health{})
	if v.ready() == nil {
		t.Error("Envoy is ready although it is about to end")
	}
	want := []probe.Health{{Reason: "the proxy is not ready: Envoy is starting"}, {Reason: notIntercepted}, {},
		{Reason: "503"}, {Reason: "the proxy is not ready: away"}, {}, {Reason: "this proxy is about to end"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("reports (-want +got):\n%s", d)
	}
}

// findJoined finds the only workload that has joined, or the main one of several.
func TestFindJoined(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	if _, _, err := findJoined(filepath.Join(base, "none")); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("nothing there: %v", err)
	}
	add := func(name string, joined bool) {
		if err := os.Mkdir(filepath.Join(base, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if !joined {
			return
		}
		if err := os.WriteFile(filepath.Join(base, name, identityFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	add("trial.default", false)
	if _, _, err := findJoined(base); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("one that did not join: %v", err)
	}
	add("web-1.shop", true)
	if dir, _, err := findJoined(base); err != nil || filepath.Base(dir) != "web-1.shop" {
		t.Errorf("one: %q, %v", dir, err)
	}
	add("web-2.shop", true)
	add("web-1.bank", true)
	if _, _, err := findJoined(base); err == nil || !strings.Contains(err.Error(), "several workloads of this machine have joined: say which one "+
		"by --state: ") {
		t.Errorf("several: %v", err)
	}
	if err := os.Symlink("web-2.shop", filepath.Join(base, MainLink)); err != nil {
		t.Fatal(err)
	}
	if dir, _, err := findJoined(base); err != nil || filepath.Base(dir) != "web-2.shop" {
		t.Errorf("several, of which one is the main one: %q, %v", dir, err)
	}
	if _, all, err := findJoined(base); err != nil || len(all) != 3 {
		t.Errorf("all: %q, %v; want three", all, err)
	}
}

// Joining keeps the settings that differ from the defaults, and no others.
func TestOwnSettings(t *testing.T) {
	t.Parallel()
	s := Default()
	s.State, s.Workload.Name, s.Ports.DNS, s.Drain.Maximum = stateFolder(t), "web-1", 15153, 90*time.Second
	s.Workload.Labels, s.XDS.Addresses = map[string]string{"app": "web"}, []string{"a:1"}
	s.Probe.AllowGroupExec = true
	if err := saveSettings(&s); err != nil {
		t.Fatal(err)
	}
	got := ownSettings(t, s.State, func(s *Settings) { s.Workload.Addresses = []string{"127.0.0.2"} })
	want := s
	want.Workload.Addresses = []string{"127.0.0.2"}
	if err := want.Complete(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Envoy{}, Workload{})); d != "" {
		t.Errorf("read back (-want +got):\n%s", d)
	}
	text, err := os.ReadFile(JoinedSettings(s.State))
	if err != nil {
		t.Fatal(err)
	}
	for _, no := range []string{"drainTime", "namespace", "state:", "15053"} {
		if strings.Contains(string(text), no) {
			t.Errorf("it holds %s:\n%s", no, text)
		}
	}
}

// A socket is for this user and root, also when another program left something in its place.
func TestSockets(t *testing.T) {
	t.Parallel()
	dir := stateFolder(t)
	path := filepath.Join(dir, "s")
	first, err := listenUnix(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) // as after a kill
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := listenUnix(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(conn.Close(), served.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err = listenUnix(path, 0o600)
	if err != nil {
		t.Fatalf("in place of a file: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// What starts an agent depends on who runs it. A package that was installed again has no enabled unit.
func TestStartRemedy(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		PackagedState + "/web-1.shop": "systemctl start ashore-agent, or paste here again the line ",
		"/home/anna/web-1.shop":       "start the agent: ashore-agent run --state /home/anna/web-1.shop",
	} {
		if got := startRemedy(state); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
}
