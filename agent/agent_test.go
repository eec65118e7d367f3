package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"google.golang.org/protobuf/types/known/anypb"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/internal/testenvoy"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// testTimeout bounds every wait of these tests; none of them takes nearly as long.
const testTimeout = 30 * time.Second

// running is an agent that runs until the test stops it.
type running struct {
	t     *testing.T
	s     Settings
	agent *Agent
	stop  context.CancelFunc
	done  chan error

	once sync.Once
	err  error
}

// start runs an agent; it is stopped when the test ends.
func start(t *testing.T, s Settings) *running {
	t.Helper()
	if s.Envoy.Path == "" {
		s.Envoy.Path = testenvoy.Path(t)
	}
	a, err := New(Config{Settings: s, Log: testlog.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, s: s, agent: a, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- a.Run(ctx) }()
	t.Cleanup(func() {
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// end stops the agent and returns what Run returned.
func (r *running) end() error {
	r.once.Do(func() {
		r.stop()
		select {
		case r.err = <-r.done:
		case <-time.After(testTimeout):
			r.err = errors.New("the agent does not end")
		}
	})
	return r.err
}

// get asks a port of the workload; err covers what is not an HTTP answer.
func (r *running) get(method string, port int, path string) (int, string, error) {
	req, err := http.NewRequest(method, "http://"+r.s.at(port)+path, nil)
	if err != nil {
		return 0, "", err
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testTimeout}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), errors.Join(err, resp.Body.Close())
}

// eventually waits until ok is nil.
func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ready waits until a port says so.
func (r *running) ready(port int) {
	r.t.Helper()
	eventually(r.t, "readiness", func() error {
		code, body, err := r.get(http.MethodGet, port, "/healthz/ready")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
}

// echoService accepts connections and sends back what it receives.
func echoService(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // ends with the connection
			})
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	return l.Addr().String()
}

// tcpForward is a cluster at target and a listener at "at" that forwards to it.
func tcpForward(t *testing.T, at, target string) ([]*clusterv3.Cluster, []*listenerv3.Listener) {
	t.Helper()
	proxy, err := anypb.New(&tcpproxyv3.TcpProxy{StatPrefix: "t",
		ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: "outbound|80||a.b.example"}})
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := hostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	thost, tport, err := hostPort(target)
	if err != nil {
		t.Fatal(err)
	}
	return []*clusterv3.Cluster{localCluster("outbound|80||a.b.example", tcpAddress(thost, tport))},
		[]*listenerv3.Listener{{Name: "l", Address: tcpAddress(host, port), EnableReusePort: wrapperspb.Bool(false),
			FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{Name: "envoy.filters.network.tcp_proxy",
				ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: proxy}}}}}}}
}

// The whole life with a real Envoy: it becomes ready with the control plane's configuration and
// passes traffic. It serves only health and metrics. It drains an open connection at the end. Then
// files and processes are gone.
func TestLife(t *testing.T) {
	t.Parallel()
	const address = "127.0.41.2"
	clusters, listeners := tcpForward(t, address+":9000", echoService(t))
	plane := startControlPlane(t, clusters, listeners)
	r := start(t, example(t, address, func(s *Settings) {
		s.XDS.Addresses = []string{plane.address}
		s.Drain.Maximum = testTimeout
	}))
	r.ready(statusPort)
	r.ready(healthPort)

	if got, want := plane.introduced().GetId(), "sidecar~127.0.41.2~web-1.shop~shop.svc.cluster.local"; got != want {
		t.Errorf("node ID %q, want %q", got, want)
	}
	if code, body, err := r.get(http.MethodGet, metricsPort, "/stats/prometheus"); err != nil ||
		code != http.StatusOK ||
		!strings.Contains(body, `cluster_name="outbound|80||a.b.example"`) ||
		!strings.Contains(body, `cluster_name="xds-grpc"`) {
		t.Errorf("metrics: %d, %v; want the cluster's whole name as a label, got:\n%.2000s", code, err, body)
	}
	for _, ask := range []struct {
		method, path string
		port         int
	}{
		{http.MethodPost, "/quitquitquit", metricsPort}, {http.MethodGet, "/config_dump", metricsPort},
		{http.MethodPost, "/stats/prometheus", metricsPort}, {http.MethodGet, "/", healthPort},
		{http.MethodGet, "/x", statusPort},
	} {
		if code, _, err := r.get(ask.method, ask.port, ask.path); err != nil || code == http.StatusOK {
			t.Errorf("%s %s on port %d: %d, %v; want it refused", ask.method, ask.path, ask.port, code, err)
		}
	}
	if info, err := os.Stat(filepath.Join(r.s.State, "bootstrap.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("bootstrap: %v, %v; want mode 0600", info, err)
	}

	conn, err := net.Dial("tcp", address+":9000")
	if err != nil {
		t.Fatal(err)
	}
	talk(t, conn, "before")
	r.stop()
	eventually(t, "readiness while draining", func() error {
		code, body, err := r.get(http.MethodGet, statusPort, "/healthz/ready")
		if err == nil && (code != http.StatusServiceUnavailable || !strings.Contains(body, "draining")) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	talk(t, conn, "while draining") // the connection lives as long as it likes, within the bound
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := r.end(); err != nil {
		t.Errorf("the end: %v", err)
	}
	if conn, err := net.Dial("tcp", address+":9000"); err == nil {
		t.Error("Envoy outlived its agent")
		conn.Close()
	}
}

// talk sends text and expects it back.
func talk(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, len(text))
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != text {
		t.Fatalf("%s: got %q, %v", text, buf, err)
	}
}

// A drain ends at its bound though a connection stays open.
func TestDrainBound(t *testing.T) {
	t.Parallel()
	const address = "127.0.41.3"
	clusters, listeners := tcpForward(t, address+":9000", echoService(t))
	plane := startControlPlane(t, clusters, listeners)
	r := start(t, example(t, address, func(s *Settings) {
		s.XDS.Addresses = []string{plane.address}
		s.Drain.Maximum = 300 * time.Millisecond
	}))
	r.ready(statusPort)
	conn, err := net.Dial("tcp", address+":9000")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	talk(t, conn, "hello")
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// An Envoy that is killed is started again and takes traffic; no operator has to act.
func TestRestart(t *testing.T) {
	t.Parallel()
	const address = "127.0.41.4"
	clusters, listeners := tcpForward(t, address+":9000", echoService(t))
	plane := startControlPlane(t, clusters, listeners)
	r := start(t, example(t, address, func(s *Settings) {
		s.XDS.Addresses = []string{plane.address}
	}))
	r.ready(statusPort)
	first := r.pid()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another Envoy", func() error {
		if conn, err := net.Dial("tcp", address+":9000"); err != nil {
			return err
		} else if err := conn.Close(); err != nil {
			return err
		}
		if r.pid() == first {
			return errors.New("still the first")
		}
		return nil
	})
	r.ready(statusPort)
}

// pid is Envoy's process: the one whose arguments name our bootstrap. Zero when there is none.
func (r *running) pid() int {
	r.t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range found {
		line, err := os.ReadFile(f)
		if err == nil && bytes.Contains(line, []byte(filepath.Join(r.s.State, "bootstrap.json"))) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			if err != nil {
				r.t.Fatal(err)
			}
			return pid
		}
	}
	return 0
}

// Without a control plane Envoy runs and is not ready, and says what it waits for.
func TestNoControlPlane(t *testing.T) {
	t.Parallel()
	r := start(t, example(t, "127.0.41.5", func(s *Settings) { s.XDS.Addresses = []string{"127.0.41.5:1"} }))
	eventually(t, "the reason", func() error {
		code, body, err := r.get(http.MethodGet, statusPort, "/healthz/ready")
		if err == nil && (code != http.StatusServiceUnavailable ||
			!strings.Contains(body, "control plane 127.0.41.5:1 does not answer")) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
}

// An Envoy that cannot work is tried again and again, and readiness says why in Envoy's words.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	broken, err := filepath.Abs("testdata/broken-envoy")
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, example(t, "127.0.41.11", func(s *Settings) { s.Envoy.Path = broken }))
	want := "Envoy does not run: " + broken + ": exit status 1: [1][critical][main] error initializing: bad tea"
	eventually(t, "the reason", func() error {
		code, body, err := r.get(http.MethodGet, statusPort, "/healthz/ready")
		if err == nil && (code != http.StatusServiceUnavailable || strings.TrimSpace(body) != want) {
			err = fmt.Errorf("%d %s, want %s", code, body, want)
		}
		return err
	})
}

// An error that prevents the start names the setting.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	take := func(at string) {
		taken, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := taken.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	take("127.0.41.6:15020")
	take("127.0.41.14:15021")
	take("127.0.41.15:15090")
	for _, tc := range []struct {
		name, address, want string
	}{
		{"status port in use", "127.0.41.6", "127.0.41.6:15020 is in use by"},
		{"health port in use", "127.0.41.14", "127.0.41.14:15021 is in use by"},
		{"metrics port in use", "127.0.41.15", "127.0.41.15:15090 is in use by"},
		{"not of this machine", "192.0.2.1", "workload.addresses: 192.0.2.1 is not an address of this machine"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := start(t, example(t, tc.address, nil)).fails(); err == nil ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	// Two agents never share a state folder.
	s := example(t, "127.0.41.7", nil)
	lock, err := lockState(s.State)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	want := fmt.Sprintf("in use by another ashore-agent (process %d)", os.Getpid())
	if err := start(t, s).fails(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// fails waits for Run to return by itself, and takes its error for the end's.
func (r *running) fails() error {
	var err error
	select {
	case err = <-r.done:
	case <-time.After(testTimeout):
		r.t.Fatal("the agent runs on")
	}
	r.once.Do(r.stop)
	return err
}

// The admin interface can be used by the agent's user alone; no port of the workload leads to it.
func TestAdminInterface(t *testing.T) {
	t.Parallel()
	plane := startControlPlane(t, nil, nil)
	r := start(t, example(t, "127.0.41.9", func(s *Settings) { s.XDS.Addresses = []string{plane.address} }))
	r.ready(statusPort)
	if s, err := os.Stat(r.s.adminSocket()); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("admin socket: %v, %v; want mode 0600", s, err)
	}
	if conn, err := net.Dial("tcp", "127.0.41.9:15000"); err == nil {
		t.Error("Envoy's admin interface can be reached at port 15000")
		conn.Close()
	}
}

// hostPort splits an address.
func hostPort(address string) (host string, port uint32, err error) {
	at, err := netip.ParseAddrPort(address)
	return at.Addr().String(), uint32(at.Port()), err
}
