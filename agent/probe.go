package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Probe says how the agent finds out whether the application is well. At most one of the ways is set; without one the
// application counts as well. Names, meanings and defaults are those of Istio's ReadinessProbe.
type Probe struct {
	// HTTPGet is well when a GET is answered with 200 to 399.
	HTTPGet *ProbeHTTP `yaml:"httpGet"`
	// TCPSocket is well when a connection can be opened.
	TCPSocket *ProbeTCP `yaml:"tcpSocket"`
	// Exec is well when the command ends with 0.
	Exec *ProbeExec `yaml:"exec"`
	// InitialDelay is before the first probe.
	InitialDelay time.Duration `yaml:"initialDelay"`
	// Period is between two probes. Zero means 10s.
	Period time.Duration `yaml:"period"`
	// Timeout bounds one probe. Zero means 1s.
	Timeout time.Duration `yaml:"timeout"`
	// SuccessThreshold is how many in a row make an application well that was not. Zero means 1.
	SuccessThreshold int `yaml:"successThreshold"`
	// FailureThreshold is how many in a row make it unwell. Zero means 3.
	FailureThreshold int `yaml:"failureThreshold"`
}

// ProbeHTTP is a GET.
type ProbeHTTP struct {
	// Path is asked for. Empty: "/".
	Path string `yaml:"path"`
	Port int    `yaml:"port"`
	// Host is connected to and named. Empty: the workload's first address.
	Host string `yaml:"host"`
	// Scheme is "http" or "https", whose certificate is not looked at. Empty: "http".
	Scheme string `yaml:"scheme"`
}

// ProbeTCP is a connection.
type ProbeTCP struct {
	Port int `yaml:"port"`
	// Host is connected to. Empty: the workload's first address.
	Host string `yaml:"host"`
}

// ProbeExec is a command with its arguments; it is not given to a shell.
type ProbeExec struct {
	Command []string `yaml:"command"`
}

// Health is how the application is.
type Health struct {
	Healthy bool
	// Reason is why not; empty when it is well.
	Reason string
}

// set says whether there is something to do.
func (p *Probe) set() bool { return p.HTTPGet != nil || p.TCPSocket != nil || p.Exec != nil }

// withDefaults fills in what is zero.
func (p Probe) withDefaults() Probe {
	for _, d := range []struct {
		at       *time.Duration
		fallback time.Duration
	}{{&p.Period, 10 * time.Second}, {&p.Timeout, time.Second}} {
		if *d.at == 0 {
			*d.at = d.fallback
		}
	}
	p.SuccessThreshold = max(p.SuccessThreshold, 1)
	if p.FailureThreshold == 0 {
		p.FailureThreshold = 3
	}
	return p
}

// config is the probe in Istio's ProxyConfig, nil without one: that it exists tells the control plane to wait for the
// first report before it sends traffic.
func (p *Probe) config() map[string]any {
	if !p.set() {
		return nil
	}
	d := p.withDefaults()
	out := map[string]any{
		"initialDelaySeconds": int(d.InitialDelay.Seconds()), "periodSeconds": int(max(d.Period.Seconds(), 1)), "timeoutSeconds": int(max(d.Timeout.Seconds(), 1)),
		"successThreshold": d.SuccessThreshold, "failureThreshold": d.FailureThreshold,
	}
	switch {
	case p.HTTPGet != nil:
		out["httpGet"] = map[string]any{"path": p.HTTPGet.Path, "port": p.HTTPGet.Port, "host": p.HTTPGet.Host, "scheme": p.HTTPGet.Scheme}
	case p.TCPSocket != nil:
		out["tcpSocket"] = map[string]any{"port": p.TCPSocket.Port, "host": p.TCPSocket.Host}
	default:
		var words []any
		for _, w := range p.Exec.Command {
			words = append(words, w)
		}
		out["exec"] = map[string]any{"command": words}
	}
	return out
}

// readinessProbe is what the control plane is told of probes, nil: there are none. A registered workload has one in any case,
// that of its proxy: it is no endpoint before the first report.
func (s *Settings) readinessProbe() map[string]any {
	p := s.Probe
	if !p.set() && s.Workload.Group != "" && !s.Dev {
		p.HTTPGet = &ProbeHTTP{Path: "/healthz/ready", Port: s.Ports.Status}
	}
	return p.config()
}

// probe checks the settings.
func (c *checker) probe(p *Probe) {
	ways := 0
	if h := p.HTTPGet; h != nil {
		ways++
		c.between("probe.httpGet.port", h.Port, 1, 65535)
		c.oneOf("probe.httpGet.scheme", strings.ToLower(h.Scheme), "", "http", "https")
		if h.Path != "" && !strings.HasPrefix(h.Path, "/") {
			c.fail("probe.httpGet.path", "%q is not a path; want one that begins with /", h.Path)
		}
	}
	if p.TCPSocket != nil {
		ways++
		c.between("probe.tcpSocket.port", p.TCPSocket.Port, 1, 65535)
	}
	if p.Exec != nil {
		ways++
		if len(p.Exec.Command) == 0 {
			c.fail("probe.exec.command", "not set; give the program and its arguments")
		}
	}
	if ways > 1 {
		c.fail("probe", "several ways are set; want one of httpGet, tcpSocket and exec")
	}
	for name, d := range map[string]time.Duration{"probe.initialDelay": p.InitialDelay, "probe.period": p.Period, "probe.timeout": p.Timeout} {
		if d < 0 {
			c.fail(name, "%v is less than no time; want 0 or more", d)
		}
	}
	c.between("probe.successThreshold", p.SuccessThreshold, 0, 1000)
	c.between("probe.failureThreshold", p.FailureThreshold, 0, 1000)
}

// prober probes the application and reports changes.
type prober struct {
	probe  Probe // with defaults
	once   func(context.Context) error
	report func(Health)
	log    hclog.Logger
}

// newProber makes one for settings that Complete has accepted; report is called with the first state and with each other one.
func newProber(s *Settings, report func(Health), log hclog.Logger) *prober {
	p := &prober{probe: s.Probe.withDefaults(), report: report, log: log.Named("probe")}
	own := s.Workload.Addresses[0]
	switch {
	case p.probe.HTTPGet != nil:
		p.once = p.probe.HTTPGet.try(own)
	case p.probe.TCPSocket != nil:
		p.once = p.probe.TCPSocket.try(own)
	case p.probe.Exec != nil:
		p.once = p.probe.Exec.try
	}
	return p
}

// Run probes until ctx ends. Without a way to probe the application is reported as well once.
func (p *prober) Run(ctx context.Context) error {
	if p.once == nil {
		p.report(Health{Healthy: true})
		return nil
	}
	c := counter{up: p.probe.SuccessThreshold, down: p.probe.FailureThreshold}
	wait := p.probe.InitialDelay
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = p.probe.Period
		one, cancel := context.WithTimeout(ctx, p.probe.Timeout)
		err := p.once(one)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if h, changed := c.count(err); changed {
			if h.Healthy {
				p.log.Info("the application is well")
			} else {
				p.log.Warn("the application is not well", "reason", h.Reason)
			}
			p.report(h)
		}
	}
}

// counter makes states of single results.
type counter struct {
	up, down int // thresholds
	known    bool
	healthy  bool
	row      int // results in a row that speak against the state
}

// count takes in one result; changed says that h is another state than before, or the first.
func (c *counter) count(err error) (h Health, changed bool) {
	well := err == nil
	if c.known && well == c.healthy {
		c.row = 0
		return Health{}, false
	}
	if !c.known && c.row > 0 && well != c.healthy {
		c.row = 0
	}
	if !c.known {
		c.healthy = well
	}
	c.row++
	need := c.down
	if well {
		need = c.up
	}
	if c.row < need {
		return Health{}, false
	}
	c.known, c.healthy, c.row = true, well, 0
	h.Healthy = well
	if err != nil {
		h.Reason = err.Error()
	}
	return h, true
}

// try asks once; own is the workload's address.
func (h *ProbeHTTP) try(own string) func(context.Context) error {
	host := h.Host
	if host == "" {
		host = own
	}
	scheme, path := strings.ToLower(h.Scheme), h.Path
	if scheme == "" {
		scheme = "http"
	}
	if path == "" {
		path = "/"
	}
	client := probeClient()
	url := scheme + "://" + net.JoinHostPort(host, strconv.Itoa(h.Port)) + path
	return func(ctx context.Context) (err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		req.Header.Set("User-Agent", "ashore-agent")
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
		if resp.StatusCode < 200 || resp.StatusCode > 399 {
			return errors.Join(fmt.Errorf("%s answers %d", url, resp.StatusCode), resp.Body.Close())
		}
		return errors.Join(err, resp.Body.Close())
	}
}

// try connects once.
func (t *ProbeTCP) try(own string) func(context.Context) error {
	host := t.Host
	if host == "" {
		host = own
	}
	return func(ctx context.Context) error {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(t.Port)))
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// try runs the command once. What it started ends with it when its time is over.
func (e *ProbeExec) try(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, e.Command[0], e.Command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", e.Command[0], err)
	}
	return nil
}

// probeClient looks at no certificate, follows no redirect and keeps no connection.
func probeClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // the application's own, on this machine; as Istio does
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}
