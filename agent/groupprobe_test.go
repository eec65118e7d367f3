package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// grouped are settings that follow the group's probe.
func grouped() Settings {
	s := good()
	s.Dev, s.Workload.Group = false, "web"
	s.Workload.Addresses = []string{"10.0.0.7", "fd00::7"}
	return s
}

// httpProbe is a group's probe of a host.
func httpProbe(host, path string) *networking.ReadinessProbe {
	return &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_HttpGet{
		HttpGet: &networking.HTTPHealthCheckConfig{Host: host, Path: path, Port: 8080, Scheme: "HTTP"}}}
}

// tcpProbe is a group's probe of a host.
func tcpProbe(host string) *networking.ReadinessProbe {
	return &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_TcpSocket{TcpSocket: &networking.TCPHealthCheckConfig{Host: host, Port: 8080}}}
}

// execProbe is a group's probe by a command.
func execProbe(command ...string) *networking.ReadinessProbe {
	return &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_Exec{Exec: &networking.ExecHealthCheckConfig{Command: command}}}
}

// A group's probe is taken over whole, and is refused where it would reach beyond the workload or run a command, unless the
// settings let it.
func TestGroupProbe(t *testing.T) {
	t.Parallel()
	exec := func(s *Settings) { s.Probe.AllowGroupExec = true }
	hosts := func(s *Settings) { s.Probe.AllowGroupHosts = []string{"db.test", "10.0.0.9"} }
	whole := httpProbe("", "/ready")
	whole.InitialDelaySeconds, whole.PeriodSeconds, whole.TimeoutSeconds, whole.SuccessThreshold, whole.FailureThreshold = 1, 2, 3, 4, 5
	whole.GetHttpGet().HttpHeaders = []*networking.HTTPHeader{{Name: "Host", Value: "web.test"}}
	for _, tc := range []struct {
		name  string
		probe *networking.ReadinessProbe
		edit  func(*Settings)
		want  Probe
		why   string // it is refused for
	}{
		{"nothing told", nil, nil, Probe{}, ""},
		{"none", &networking.ReadinessProbe{}, nil, Probe{}, ""},
		{"http", whole, nil, Probe{InitialDelay: time.Second, Period: 2 * time.Second, Timeout: 3 * time.Second, SuccessThreshold: 4, FailureThreshold: 5,
			HTTPGet: &ProbeHTTP{Path: "/ready", Port: 8080, Scheme: "HTTP", Headers: []ProbeHeader{{"Host", "web.test"}}}}, ""},
		{"grpc", &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_Grpc{Grpc: &networking.GrpcHealthCheckConfig{Port: 9000, Service: "web"}}}, nil,
			Probe{GRPC: &ProbeGRPC{Port: 9000, Service: "web"}}, ""},
		{"its own second address", tcpProbe("fd00:0::7"), nil, Probe{TCPSocket: &ProbeTCP{Host: "fd00:0::7", Port: 8080}}, ""},
		{"loopback", tcpProbe("::ffff:127.0.0.1"), nil, Probe{TCPSocket: &ProbeTCP{Host: "::ffff:127.0.0.1", Port: 8080}}, ""},
		{"localhost", tcpProbe("LocalHost"), nil, Probe{TCPSocket: &ProbeTCP{Host: "LocalHost", Port: 8080}}, ""},
		{"a name that only looks so", tcpProbe("localho\u017ft"), nil, Probe{}, "asks the host"},
		{"loopback of a zone", tcpProbe("::1%eth0"), nil, Probe{}, "asks the host"},
		{"another workload of this machine", tcpProbe("127.0.0.9"), nil, Probe{}, `asks the host "127.0.0.9"`},
		{"every address", tcpProbe("0.0.0.0"), nil, Probe{}, `asks the host "0.0.0.0"`},
		{"metadata of a cloud", httpProbe("169.254.169.254", "/latest"), nil, Probe{}, "probe.allowGroupHosts (--allow-group-hosts)"},
		{"another host", httpProbe("db.test", ""), nil, Probe{}, `asks the host "db.test"`},
		{"another host that may be asked", httpProbe("db.test", ""), hosts, Probe{HTTPGet: &ProbeHTTP{Host: "db.test", Port: 8080, Scheme: "HTTP"}}, ""},
		{"one beside it", tcpProbe("10.0.0.10"), hosts, Probe{}, `asks the host "10.0.0.10"`},
		{"a command", execProbe("true"), hosts, Probe{}, "probe.allowGroupExec (--allow-group-exec)"},
		{"a command that may be run", execProbe("true"), exec, Probe{Exec: &ProbeExec{Command: []string{"true"}}}, ""},
		{"no command", execProbe(), exec, Probe{}, "probe.exec.command: not set"},
		{"no port", &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_TcpSocket{}}, nil, Probe{}, "probe.tcpSocket.port: 0 is out of range"},
		{"a negative time", &networking.ReadinessProbe{PeriodSeconds: -1, HealthCheckMethod: tcpProbe("").HealthCheckMethod}, nil, Probe{}, "probe.period: -1s"},
		{"an unknown way", &networking.ReadinessProbe{PeriodSeconds: 1}, nil, Probe{}, "does not know"},
	} {
		s := grouped()
		if tc.edit != nil {
			tc.edit(&s)
		}
		n := groupProbe(tc.probe, &s)
		if (n.refused != nil) != (tc.why != "") || n.refused != nil && !strings.Contains(n.refused.Error(), tc.why) {
			t.Errorf("%s: refused with %v, want %q", tc.name, n.refused, tc.why)
		}
		if d := cmp.Diff(tc.want, n.probe); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, d)
		}
	}
}

// Whatever a control plane tells: a probe never runs a command, nor asks another host, where the settings do not let it.
func FuzzGroupProbe(f *testing.F) {
	for _, p := range []*networking.ReadinessProbe{{}, httpProbe("db.test", "/x"), httpProbe("", "/\u009b2J"), tcpProbe("127.0.0.1"), execProbe("sh", "-c", "id")} {
		b, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := grouped()
		told := make(chan groupNews, 1)
		var probe networking.ReadinessProbe
		if err := proto.Unmarshal(body, &probe); err != nil {
			return
		}
		if err := setProbe(&s, told)(&probe); err != nil {
			return
		}
		n := <-told
		host := ""
		switch {
		case n.refused != nil || n.probe.Exec != nil:
			t.Fatalf("acknowledged: %+v", n)
		case n.probe.HTTPGet != nil:
			host = n.probe.HTTPGet.Host
		case n.probe.TCPSocket != nil:
			host = n.probe.TCPSocket.Host
		}
		if a, err := netip.ParseAddr(host); err == nil {
			host = a.Unmap().String()
		}
		if !slices.Contains([]string{"", "127.0.0.1", "::1", "localhost", "10.0.0.7", "fd00::7"}, strings.ToLower(host)) {
			t.Fatalf("it asks %q", host)
		}
		if n.probe.set() {
			if text := n.probe.text("10.0.0.7"); strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("%q does something to a terminal", text)
			}
			_ = n.probe.try("10.0.0.7")
		}
	})
}

// following is a prober that runs in the bubble of a synctest. The test tells it the group's probes and makes the application
// well or not.
type following struct {
	t       *testing.T
	prober  *prober
	told    chan groupNews
	trouble atomic.Pointer[string] // nil: the application is well
	asked   atomic.Int64           // how often
	reports []Health
}

func follow(t *testing.T, f func(*following)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := grouped()
		x := &following{t: t, told: make(chan groupNews, 1)}
		x.prober = newProber(&s, x.told, nil, func(h Health) { x.reports = append(x.reports, h) }, testlog.New(t))
		x.prober.way = func(*Probe) func(context.Context) error { return x.answer }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- x.prober.Run(ctx) }()
		f(x)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (x *following) answer(context.Context) error {
	x.asked.Add(1)
	if trouble := x.trouble.Load(); trouble != nil {
		return errors.New(*trouble)
	}
	return nil
}

// tells has a probe told, and waits until it was taken in.
func (x *following) tells(p *networking.ReadinessProbe) {
	s := grouped()
	x.told <- groupProbe(p, &s)
	synctest.Wait()
}

// wants lets time pass; these are to be reported meanwhile.
func (x *following) wants(what string, d time.Duration, want ...Health) {
	x.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if d := cmp.Diff(want, x.reports); d != "" {
		x.t.Errorf("%s (-want +got):\n%s", what, d)
	}
	x.reports = nil
}

// The group's probe holds as it is told. Nothing is reported before it is known whether there is one; an edit takes nobody out of
// the endpoints by itself; a probe that vanishes leaves the workload well; what is told again changes nothing.
func TestProberFollowsGroup(t *testing.T) {
	t.Parallel()
	well, no := Health{Healthy: true}, "no"
	slow := httpProbe("", "/slow")
	slow.InitialDelaySeconds, slow.PeriodSeconds = 60, 3600
	follow(t, func(x *following) {
		x.wants("nothing is known", time.Hour)
		x.tells(nil)
		x.wants("no control plane tells any", portsWait, well)
		x.trouble.Store(&no)
		x.tells(httpProbe("", "/a"))
		x.wants("a probe comes", 19*time.Second)
		x.wants("and decides", 2*time.Second, Health{Reason: no})
		x.tells(&networking.ReadinessProbe{})
		x.wants("it vanishes", 0, well)
		if n := x.asked.Load(); n != 3 {
			t.Errorf("asked %d times, want 3", n)
		}
	})
	follow(t, func(x *following) {
		x.tells(slow)
		x.wants("the application begins", 59*time.Second)
		x.wants("it is asked", 2*time.Second, well)
		x.tells(slow)
		x.tells(slow)
		x.wants("told again", 58*time.Minute)
		if n := x.asked.Load(); n != 1 {
			t.Errorf("asked %d times, want once: the same probe began anew", n)
		}
		x.trouble.Store(&no)
		once := httpProbe("", "/b")
		once.FailureThreshold = 1
		x.tells(once)
		x.wants("another one asks at once", 0, Health{Reason: no})
		x.trouble.Store(nil)
		x.wants("well again", 10*time.Second, well)
	})
}

// A probe that is refused keeps a workload out of the endpoints only where there is none to go on with, and says so.
func TestProberRefusesGroup(t *testing.T) {
	t.Parallel()
	state := func(x *following, refused bool, by string) {
		x.t.Helper()
		if st := x.prober.State(); (st.refused != nil) != refused || st.by != by {
			x.t.Errorf("it says %q, refused %v; want %q, %v", st.by, st.refused, by, refused)
		}
	}
	well, by := Health{Healthy: true}, "probed as its group says, by GET http://10.0.0.7:8080/a"
	refusal := groupProbe(execProbe("id"), new(Settings)).refused
	follow(t, func(x *following) {
		x.tells(execProbe("id"))
		x.wants("nothing to go on with", time.Hour, Health{Reason: refusal.Error()})
		state(x, true, "")
		x.tells(httpProbe("", "/a"))
		x.wants("mended", 0, well)
		state(x, false, by)
		x.tells(execProbe("id"))
		x.wants("it goes on by the one before", time.Hour)
		state(x, true, by)
		before := x.asked.Load()
		x.tells(httpProbe("", "/a"))
		x.wants("back to that", time.Second)
		state(x, false, by)
		if n := x.asked.Load(); n != before {
			t.Errorf("asked %d times more: it began anew", n-before)
		}
	})
	follow(t, func(x *following) {
		x.tells(&networking.ReadinessProbe{})
		x.tells(execProbe("id"))
		x.wants("there was none before", time.Hour, well)
		state(x, true, "")
	})
}

// A probe of the agent's own wins over the group's, and without a group there is none.
func TestOwnProbeWins(t *testing.T) {
	t.Parallel()
	s := grouped()
	if !s.followsGroup() || setProbe(&s, nil) == nil {
		t.Error("the group's probe is not followed")
	}
	s.Probe.TCPSocket = &ProbeTCP{Port: 8080}
	p := newProber(&s, make(chan groupNews), nil, nil, testlog.New(t))
	if by := p.State().by; by != "probed as its own settings say, by a TCP connection to 10.0.0.7:8080" || p.told != nil || setProbe(&s, nil) != nil {
		t.Errorf("it says %q", by)
	}
	if s = grouped(); s.Probe.set() {
		t.Fatal("the example has a probe")
	}
	s.Workload.Group = ""
	if p := newProber(&s, make(chan groupNews), nil, nil, testlog.New(t)); !p.decided || setProbe(&s, nil) != nil {
		t.Error("without a group it waits for one's probe")
	}
}
