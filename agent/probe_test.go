package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
)

// Results make states: the first state needs its threshold too, and a single result against a state changes nothing.
func TestProbeThresholds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, results, want string // + and -; a dot where nothing is reported
		up, down            int
	}{
		{"ones", "+-+", "+-+", 1, 1},
		{"defaults", "+--+---+", "+.....-+", 1, 3},
		{"first is bad", "---+", "..-+", 1, 3},
		{"slow to come up", "++-+++---", ".+.......", 2, 4},
		{"undecided at first", "+-+-++", ".....+", 2, 2},
	} {
		c := counter{up: tc.up, down: tc.down}
		got := ""
		for _, r := range tc.results {
			var err error
			if r == '-' {
				err = errors.New("no")
			}
			h, changed := c.count(err)
			switch {
			case !changed:
				got += "."
			case h.Healthy:
				got += "+"
			default:
				got += "-"
			}
		}
		if got != tc.want {
			t.Errorf("%s: %s gives %s, want %s", tc.name, tc.results, got, tc.want)
		}
	}
}

// The application is probed in its period and only changes are reported.
func TestProber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reports []Health
		var times []time.Duration
		start := time.Now()
		s := good()
		s.Probe = Probe{TCPSocket: &ProbeTCP{Port: 1}, InitialDelay: 5 * time.Second}
		p := newProber(&s, nil, nil, func(h Health) { reports = append(reports, h) }, testlog.New(t))
		p.once = func(context.Context) (registry.PortStates, error) {
			times = append(times, time.Since(start))
			if len(times) > 2 && len(times) < 7 {
				return "", errors.New("connection refused")
			}
			return "", nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(85 * time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if d := cmp.Diff([]Health{{Healthy: true}, {Reason: "connection refused"}, {Healthy: true}}, reports); d != "" {
			t.Errorf("reports (-want +got):\n%s", d)
		}
		if len(times) != 8 && len(times) != 9 || times[0] != 5*time.Second || times[1] != 15*time.Second {
			t.Errorf("probed at %v", times)
		}
	})
}

// Each way tells a good application from a bad one, and ends at its timeout.
func TestProbeWays(t *testing.T) {
	t.Parallel()
	var answer atomic.Int64
	answer.Store(200)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/named" && r.Host == "web.test" && r.Header.Get("X-Probe") == "yes" {
			return
		}
		if r.URL.Path != "/ready" {
			w.WriteHeader(404)
			return
		}
		w.WriteHeader(int(answer.Load()))
	}))
	defer h.Close()
	_, text, err := net.SplitHostPort(h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	rpcPort, status := healthServer(t)
	_, free, err := net.SplitHostPort(freeAddress(t, "127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	closed, err := strconv.Atoi(free)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		probe Probe
		want  string
	}{
		{"http", Probe{HTTPGet: &ProbeHTTP{Path: "/ready", Port: port}}, ""},
		{"http, another path", Probe{HTTPGet: &ProbeHTTP{Port: port}}, "answers 404"},
		{"http, headers", Probe{HTTPGet: &ProbeHTTP{Path: "/named", Port: port, Headers: []ProbeHeader{{"host", "web.test"}, {"X-Probe", "yes"}}}}, ""},
		{"http, no headers", Probe{HTTPGet: &ProbeHTTP{Path: "/named", Port: port}}, "answers 404"},
		{"http, nobody", Probe{HTTPGet: &ProbeHTTP{Port: closed}}, "connection refused"},
		{"https of plaintext", Probe{HTTPGet: &ProbeHTTP{Port: port, Scheme: "HTTPS"}}, "HTTP response to HTTPS client"},
		{"tcp", Probe{TCPSocket: &ProbeTCP{Port: port}}, ""},
		{"tcp, nobody", Probe{TCPSocket: &ProbeTCP{Port: closed, Host: "127.0.0.1"}}, "connection refused"},
		{"grpc", Probe{GRPC: &ProbeGRPC{Port: rpcPort}}, ""},
		{"grpc, of a service that is not well", Probe{GRPC: &ProbeGRPC{Port: rpcPort, Service: "shop.Web"}}, "is NOT_SERVING"},
		{"grpc, of a service that is not there", Probe{GRPC: &ProbeGRPC{Port: rpcPort, Service: "shop.Other"}}, "NotFound"},
		{"grpc, nobody", Probe{GRPC: &ProbeGRPC{Port: closed}, Timeout: 10 * time.Second}, "connection refused"},
		{"exec", Probe{Exec: &ProbeExec{Command: []string{"true"}}}, ""},
		{"exec fails", Probe{Exec: &ProbeExec{Command: []string{"sh", "-c", "exit 3"}}}, "sh: exit status 3"},
		{"exec hangs", Probe{Exec: &ProbeExec{Command: []string{"sh", "-c", "sleep 1000 & wait"}}, Timeout: 50 * time.Millisecond}, "sh: "},
		{"exec of nothing", Probe{Exec: &ProbeExec{Command: []string{"/no/such/program"}}}, "no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := good()
			status.SetServingStatus("shop.Web", healthpb.HealthCheckResponse_NOT_SERVING)
			s.Workload.Addresses, s.Probe = []string{"127.0.0.1"}, tc.probe
			p := newProber(&s, nil, nil, nil, testlog.New(t))
			ctx, cancel := context.WithTimeout(t.Context(), p.probe.Timeout)
			defer cancel()
			_, err := p.once(ctx)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// healthServer is a gRPC server whose health the test says; the server as a whole is well.
func healthServer(t *testing.T) (port int, status *health.Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	status = health.NewServer()
	healthpb.RegisterHealthServer(g, status)
	serveUntilEnd(t, g, l)
	return l.Addr().(*net.TCPAddr).Port, status
}

// Wrong probes are named, and a right one is told to the control plane in Istio's form.
func TestProbeSettings(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Probe{
		"probe.httpGet.port: 0 is out of range": {HTTPGet: &ProbeHTTP{}},
		`probe.httpGet.scheme: "ftp"`:           {HTTPGet: &ProbeHTTP{Port: 1, Scheme: "ftp"}},
		`probe.httpGet.path: "x" is not`:        {HTTPGet: &ProbeHTTP{Port: 1, Path: "x"}},
		"probe.exec.command: not set":           {Exec: &ProbeExec{}},
		`probe.httpGet.path: "/%zz" is not`:     {HTTPGet: &ProbeHTTP{Port: 1, Path: "/%zz"}},
		`httpHeaders: "a b": "" is not a h`:     {HTTPGet: &ProbeHTTP{Port: 1, Headers: []ProbeHeader{{Name: "a b"}}}},
		`httpHeaders: "a": "x\ny" is not`:       {HTTPGet: &ProbeHTTP{Port: 1, Headers: []ProbeHeader{{"a", "x\ny"}}}},
		"probe.grpc.port: 0 is out of range":    {GRPC: &ProbeGRPC{}},
		`probe.allowGroupHosts: "a b" is`:       {AllowGroupHosts: []string{"db.test", "10.0.0.9", "a b"}},
		"probe: several ways are set":           {TCPSocket: &ProbeTCP{Port: 1}, Exec: &ProbeExec{Command: []string{"true"}}},
		"probe.timeout: -1s is less":            {TCPSocket: &ProbeTCP{Port: 1}, Timeout: -time.Second},
		"probe.failureThreshold: -1 is out of":  {TCPSocket: &ProbeTCP{Port: 1}, FailureThreshold: -1},
	} {
		s := good()
		s.Probe = p
		if err := s.Complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	p := Probe{HTTPGet: &ProbeHTTP{Path: "/ready", Port: 8080}, Period: 2 * time.Second}
	want := map[string]any{"initialDelaySeconds": 0, "periodSeconds": 2, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3,
		"httpGet": map[string]any{"path": "/ready", "port": 8080, "host": "", "scheme": ""}}
	if d := cmp.Diff(want, p.config()); d != "" {
		t.Errorf("in the node (-want +got):\n%s", d)
	}
	if (&Probe{}).config() != nil {
		t.Error("no probe is one in the node: the control plane would wait for reports for ever")
	}
}
