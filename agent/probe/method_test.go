package probe

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/testport"
)

// Results make states: the first state needs its threshold too, and a single result against a state
// changes nothing.
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
			before := c
			switch c.count(r == '+'); {
			case !c.known || before.known && before.healthy == c.healthy:
				got += "."
			case c.healthy:
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

// Each method distinguishes a healthy application from an unhealthy one, and ends at its timeout.
func TestProbeMethods(t *testing.T) {
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
	t.Cleanup(h.Close)
	_, text, err := net.SplitHostPort(h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	rpcPort, status := healthServer(t)
	status.SetServingStatus("shop.Web", healthpb.HealthCheckResponse_NOT_SERVING)
	closed := uint64(testport.Free(t))
	get := func(port uint64, path, scheme string, headers ...*networking.HTTPHeader) *networking.ReadinessProbe {
		return &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_HttpGet{
			HttpGet: &networking.HTTPHealthCheckConfig{Path: path, Port: uint32(port), Scheme: scheme,
				HttpHeaders: headers}}}
	}
	connect := func(port uint64, host string) *networking.ReadinessProbe {
		return &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_TcpSocket{
			TcpSocket: &networking.TCPHealthCheckConfig{Host: host, Port: uint32(port)}}}
	}
	call := func(port int, service string) *networking.ReadinessProbe {
		return &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_Grpc{
			Grpc: &networking.GrpcHealthCheckConfig{Port: uint32(port), Service: service}}}
	}
	header := func(name, value string) *networking.HTTPHeader {
		return &networking.HTTPHeader{Name: name, Value: value}
	}
	for _, tc := range []struct {
		name  string
		probe *networking.ReadinessProbe
		want  string
	}{
		{"http", get(port, "/ready", ""), ""},
		{"http, another path", get(port, "", ""), "answers 404"},
		{"http, headers", get(port, "/named", "", header("host", "web.test"), header("X-Probe", "yes")), ""},
		{"http, no headers", get(port, "/named", ""), "answers 404"},
		{"http, a wrong header", get(port, "/ready", "", header("a b", "")), "invalid header field name"},
		{"http, nobody", get(closed, "", ""), "connection refused"},
		{"https of plaintext", get(port, "", "HTTPS"), "HTTP response to HTTPS client"},
		{"tcp", connect(port, ""), ""},
		{"tcp, nobody", connect(closed, "127.0.0.1"), "connection refused"},
		{"grpc", call(rpcPort, ""), ""},
		{"grpc, of an unhealthy service", call(rpcPort, "shop.Web"), "is NOT_SERVING"},
		{"grpc, of an unknown service", call(rpcPort, "shop.Other"), "NotFound"},
		{"grpc, nobody", call(int(closed), ""), "connection refused"},
		{"exec", execProbe("true"), ""},
		{"exec fails", execProbe("sh", "-c", "exit 3"), "sh: exit status 3"},
		{"exec hangs", execProbe("sh", "-c", "sleep 1000 & wait"), "sh: "},
		{"exec of nothing", execProbe("/no/such/program"), "no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			run, _ := method(tc.probe, "127.0.0.1")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := run(ctx)
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
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().(*net.TCPAddr).Port, status
}
