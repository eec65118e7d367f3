package probe

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// grouped are settings that follow the group's probe.
func grouped() *Config {
	return &Config{Settings: Settings{CheckPorts: true}, Addresses: []string{"10.0.0.7", "fd00::7"},
		Log: hclog.NewNullLogger()}
}

// httpProbe is a group's probe of a host.
func httpProbe(host, path string) *networking.ReadinessProbe {
	return &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_HttpGet{
		HttpGet: &networking.HTTPHealthCheckConfig{Host: host, Path: path, Port: 8080, Scheme: "HTTP"}}}
}

// tcpProbe is a group's probe of a host.
func tcpProbe(host string) *networking.ReadinessProbe {
	return &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_TcpSocket{
		TcpSocket: &networking.TCPHealthCheckConfig{Host: host, Port: 8080}}}
}

// execProbe is a group's probe by a command.
func execProbe(command ...string) *networking.ReadinessProbe {
	return &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_Exec{
		Exec: &networking.ExecHealthCheckConfig{Command: command}}}
}

// A group's probe is refused where it would connect beyond the workload or run a command. The
// settings may allow commands.
func TestCheck(t *testing.T) {
	t.Parallel()
	exec := func(c *Config) { c.AllowGroupExec = true }
	for _, tc := range []struct {
		name  string
		probe *networking.ReadinessProbe
		edit  func(*Config)
		why   string // it is refused for
	}{
		{"http", httpProbe("", "/ready"), nil, ""},
		{"grpc", &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_Grpc{
			Grpc: &networking.GrpcHealthCheckConfig{Port: 9000}}}, nil, ""},
		{"its own second address", tcpProbe("fd00::7"), nil, ""},
		{"localhost", tcpProbe("localhost"), nil, ""},
		{"loopback of a zone", tcpProbe("::1%eth0"), nil, "connects to the host"},
		{"another workload of this machine", tcpProbe("127.0.0.9"), nil, `connects to the host "127.0.0.9"`},
		{"every address", tcpProbe("0.0.0.0"), nil, `connects to the host "0.0.0.0"`},
		{"metadata of a cloud", httpProbe("169.254.169.254", "/latest"), nil, "leave host out"},
		{"another host", httpProbe("db.test", ""), nil, `connects to the host "db.test"`},
		{"a command", execProbe("true"), nil, "probe.allowGroupExec"},
		{"an allowed command", execProbe("true"), exec, ""},
		{"no command", execProbe(), exec, "it runs a command"},
		{"an unknown method", &networking.ReadinessProbe{PeriodSeconds: 1}, nil, "does not know"},
	} {
		s := grouped()
		if tc.edit != nil {
			tc.edit(s)
		}
		c := s.read(tc.probe)
		if (c.refused != nil) != (tc.why != "") || c.refused != nil && !strings.Contains(c.refused.Error(), tc.why) {
			t.Errorf("%s: refused with %v, want %q", tc.name, c.refused, tc.why)
		}
		if (c.probe != nil) != (tc.why == "") {
			t.Errorf("%s: probe %v", tc.name, c.probe)
		}
	}
	s := grouped()
	for _, p := range []*networking.ReadinessProbe{nil, {}} {
		if c := s.read(p); c.probe != nil || c.refused != nil {
			t.Errorf("no probe gives %+v", c)
		}
	}
}

// Times and thresholds are the probe's, with Istio's defaults.
func TestSchedule(t *testing.T) {
	t.Parallel()
	whole := tcpProbe("")
	whole.InitialDelaySeconds, whole.PeriodSeconds, whole.TimeoutSeconds, whole.SuccessThreshold,
		whole.FailureThreshold = 1, 2, 3, 4, 5
	negative := tcpProbe("")
	negative.PeriodSeconds = -1
	for name, tc := range map[string]struct {
		probe *networking.ReadinessProbe
		want  schedule
	}{
		"whole":    {whole, schedule{time.Second, 2 * time.Second, 3 * time.Second, 4, 5}},
		"defaults": {tcpProbe(""), schedule{0, 10 * time.Second, time.Second, 1, 3}},
		"negative": {negative, schedule{0, 10 * time.Second, time.Second, 1, 3}},
		"none":     {nil, schedule{0, time.Second, time.Second, 1, 1}},
	} {
		if got := (&check{probe: tc.probe}).schedule(); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// Whatever a control plane sends: a probe never runs a command, nor asks another host, where the
// settings do not let it.
func FuzzGroupProbe(f *testing.F) {
	for _, p := range []*networking.ReadinessProbe{{}, httpProbe("db.test", "/x"), httpProbe("", "/\u009b2J"),
		tcpProbe("127.0.0.1"), execProbe("sh", "-c", "id")} {
		b, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var probe networking.ReadinessProbe
		if err := proto.Unmarshal(body, &probe); err != nil {
			return
		}
		n := grouped().read(&probe)
		if n.refused != nil {
			return
		}
		if n.probe.GetExec() != nil {
			t.Fatalf("accepted: %+v", n)
		}
		host := n.probe.GetHttpGet().GetHost() + n.probe.GetTcpSocket().GetHost()
		if a, err := netip.ParseAddr(host); err == nil {
			host = a.Unmap().String()
		}
		if !slices.Contains([]string{"", "127.0.0.1", "::1", "localhost", "10.0.0.7", "fd00::7"},
			strings.ToLower(host)) {
			t.Fatalf("it asks %q", host)
		}
		if n.probe != nil {
			if _, text := method(n.probe, "10.0.0.7"); strings.ContainsFunc(text,
				func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("%q does something to a terminal", text)
			}
		}
	})
}

// following is a prober that runs in the bubble of a synctest. The test sends it the group's probes
// and makes the application healthy or not.
type following struct {
	t       *testing.T
	prober  *Prober
	problem atomic.Pointer[string] // nil: the application is well
	asked   atomic.Int64           // how often

	mu      sync.Mutex
	reports []Health // guarded by mu
}

func follow(t *testing.T, f func(*following)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := &following{t: t}
		c := grouped()
		c.Report = func(h Health) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.reports = append(x.reports, h)
		}
		x.prober = New(*c)
		x.prober.method = func(p *networking.ReadinessProbe, own string) (func(context.Context) error, string) {
			_, text := method(p, own)
			return x.answer, text
		}
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
	if problem := x.problem.Load(); problem != nil {
		return errors.New(*problem)
	}
	return nil
}

// tells sends a probe, and waits until it was used.
func (x *following) tells(p *networking.ReadinessProbe) {
	_ = x.prober.Set(p) // the prober's state has the error
	synctest.Wait()
}

// wants lets time pass; these are to be reported meanwhile.
func (x *following) wants(what string, d time.Duration, want ...Health) {
	x.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	if d := cmp.Diff(want, x.reports); d != "" {
		x.t.Errorf("%s (-want +got):\n%s", what, d)
	}
	x.reports = nil
}

// The group's probe holds. Nothing is reported before it is known whether there is one; an edit
// alone removes no endpoint; a probe that vanishes leaves the workload well; an equal probe changes
// nothing.
func TestProberFollowsGroup(t *testing.T) {
	t.Parallel()
	well, no := Health{}, "no"
	slow := httpProbe("", "/slow")
	slow.InitialDelaySeconds, slow.PeriodSeconds = 60, 3600
	follow(t, func(x *following) {
		x.wants("nothing is known", time.Hour)
		x.tells(nil)
		x.wants("no control plane tells any", portsWait, well)
		x.problem.Store(&no)
		x.tells(httpProbe("", "/a"))
		x.wants("a probe comes", 19*time.Second)
		x.wants("and decides", 2*time.Second, Health{Reason: no})
		other := "other"
		x.problem.Store(&other)
		x.wants("it fails for another reason", 10*time.Second, Health{Reason: other})
		x.tells(&networking.ReadinessProbe{})
		x.wants("it vanishes", 0, well)
		if n := x.asked.Load(); n != 4 {
			t.Errorf("asked %d times, want 4", n)
		}
	})
	follow(t, func(x *following) {
		x.tells(slow)
		x.wants("the application begins", 59*time.Second)
		x.wants("it is asked", 2*time.Second, well)
		x.tells(slow)
		x.tells(slow)
		x.wants("the same again", 58*time.Minute)
		if n := x.asked.Load(); n != 1 {
			t.Errorf("asked %d times, want once: the same probe began again", n)
		}
		x.problem.Store(&no)
		once := httpProbe("", "/b")
		once.FailureThreshold = 1
		x.tells(once)
		x.wants("another one asks at once", 0, Health{Reason: no})
		x.problem.Store(nil)
		x.wants("well again", 10*time.Second, well)
	})
}

// A refused probe keeps a workload out of the endpoints only if there is no earlier probe, and is
// reported.
func TestProberRefusesGroup(t *testing.T) {
	t.Parallel()
	state := func(x *following, refused bool, by string) {
		x.t.Helper()
		if st := x.prober.State(); (st.Refused != nil) != refused || st.By != by {
			x.t.Errorf("it says %q, refused %v; want %q, %v", st.By, st.Refused, by, refused)
		}
	}
	well, by := Health{}, "probed as its group says, by GET http://10.0.0.7:8080/a"
	refusal := grouped().read(execProbe("id")).refused
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
			t.Errorf("asked %d times more: it began again", n-before)
		}
	})
	follow(t, func(x *following) {
		x.tells(&networking.ReadinessProbe{})
		x.tells(execProbe("id"))
		x.wants("there was none before", time.Hour, well)
		state(x, true, "")
	})
}
