package intercept

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testchild"
	"github.com/ashore-mesh/ashore/internal/testenvoy"
)

// TestMain runs the tests or, in a process that a test starts in a network namespace, one method of
// Machine or a query.
func TestMain(m *testing.M) {
	err := error(nil)
	switch {
	case len(os.Args) > 1 && os.Args[1] == "machine":
		var in order
		if err = json.NewDecoder(os.Stdin).Decode(&in); err == nil {
			err = in.run()
		}
	case len(os.Args) > 1 && os.Args[1] == "sshd":
		err = http.ListenAndServe(":2222", nil)
	case len(os.Args) > 1 && os.Args[1] == "query":
		err = queryFrom()
	default:
		flag.Bool("update", false, "rewrite what golden files expect")
		goleak.VerifyTestMain(m)
	}
	if err != nil {
		fmt.Fprint(os.Stderr, err)
		os.Exit(1)
	}
}

// order is what such a process does.
type order struct {
	Do      string
	Machine Machine
	Config  Config
	Checks  Checks
}

func (o order) run() error {
	ctx := context.Background()
	switch o.Do {
	case "install":
		return o.Machine.Install(ctx, o.Config, o.Checks)
	case "remove":
		return o.Machine.Remove(ctx)
	case "delete":
		return o.Machine.Delete(ctx)
	case "watch":
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
		defer stop()
		return o.Machine.Watch(ctx, func() {}, func(text string) { fmt.Println(text) })
	case "boot":
		installed, err := o.Machine.Boot(ctx)
		fmt.Print(installed)
		return err
	default:
		s, err := o.Machine.Status(ctx)
		return errors.Join(err, json.NewEncoder(os.Stdout).Encode(s))
	}
}

// The user and group of Envoy in these tests; the packages' own ones do not exist here.
const testUser = "daemon"

// lab is a network namespace with Envoy and rules.
type lab struct {
	t *testing.T
	*harness.Namespace
	order
}

// pair are a machine and a peer outside of the mesh, with both IP versions.
func pair(t *testing.T) (here *lab, there *harness.Namespace) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	a, there := harness.Linked(t)
	a.Command("ip", "address", "add", "fd99::1/64", "dev", "eth0", "nodad")
	there.Command("ip", "address", "add", "fd99::2/64", "dev", "eth0", "nodad")
	there.Command("ip", "address", "add", "10.99.0.3/24", "dev", "eth0")
	s := Default()
	s.ExcludeOutboundIPRanges = append(s.ExcludeOutboundIPRanges, "10.99.0.3")
	s.ExcludeOutboundPorts, s.ExcludeInboundPorts = []string{"9000-9099"}, []string{"22"}
	dir := t.TempDir()
	return &lab{t, a, order{
		Machine: Machine{Folder: filepath.Join(dir, "record"), Installed: filepath.Join(dir, "run", "installed"),
			Timeout: time.Second},
		Config: Config{Settings: s, User: testUser, Group: testUser},
	}}, there
}

// start starts a process that does something in the namespace.
func (m *lab) start(do string) (cmd *exec.Cmd, out, problem *bytes.Buffer) {
	m.t.Helper()
	o := m.order
	o.Do = do
	in, err := json.Marshal(o)
	if err != nil {
		m.t.Fatal(err)
	}
	cmd = m.Program(os.Args[0], "machine")
	out, problem = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), out, problem
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	return cmd, out, problem
}

// do does something and returns what it printed.
func (m *lab) do(do string) (string, error) {
	m.t.Helper()
	cmd, out, problem := m.start(do)
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%w: %s", err, problem)
	}
	return out.String(), nil
}

func (m *lab) must(do string) string {
	m.t.Helper()
	out, err := m.do(do)
	if err != nil {
		m.t.Fatalf("%s: %v", do, err)
	}
	return out
}

// refused wants an installation to fail with this text, and no rules.
func (m *lab) refused(name, want string) {
	m.t.Helper()
	if _, err := m.do("install"); err == nil || !strings.Contains(err.Error(), want) {
		m.t.Errorf("%s: %v, want %q", name, err, want)
	}
	if s := m.status(); s.Installed || !s.Confirmed.IsZero() {
		m.t.Errorf("%s: the rules are installed: %+v", name, s)
	}
}

func (m *lab) status() (s Status) {
	m.t.Helper()
	if err := json.Unmarshal([]byte(m.must("status")), &s); err != nil {
		m.t.Fatal(err)
	}
	return s
}

// envoy starts the real one and waits for it.
func (m *lab) envoy() (kill func()) {
	m.t.Helper()
	return m.envoyWith("true", "--inh-caps", "+net_raw", "--ambient-caps", "+net_raw")
}

// envoyWith starts it with transparent listeners or others, and these flags of setpriv.
func (m *lab) envoyWith(transparent string, flags ...string) (kill func()) {
	m.t.Helper()
	config, err := filepath.Abs("testdata/envoy.yaml")
	if err != nil {
		m.t.Fatal(err)
	}
	text, err := os.ReadFile(config)
	if err != nil {
		m.t.Fatal(err)
	}
	argv := append([]string{"setpriv", "--reuid", testUser, "--regid", testUser, "--clear-groups"}, flags...)
	cmd := m.Program(append(argv, testenvoy.Path(m.t), "--config-yaml",
		strings.Replace(string(text), "transparent: true", "transparent: "+transparent, 1), "--disable-hot-restart",
		"--concurrency", "1", "--log-level", "warning")...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	wait, err := testchild.Start(cmd)
	if err != nil {
		m.t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = wait()
	}
	m.t.Cleanup(func() {
		kill()
		if m.t.Failed() {
			m.t.Logf("envoy said:\n%s", &out)
		}
	})
	admin := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: m.Dial}}
	harness.Eventually(m.t, "Envoy is ready", func() error {
		resp, err := admin.Get("http://127.0.0.1:15000/ready")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	return kill
}

// serve tells each client the address that it comes from, and then repeats what it says.
func serve(t *testing.T, ns *harness.Namespace, addresses ...string) {
	t.Helper()
	for _, a := range addresses {
		l := ns.Listen(t, a)
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
					fmt.Fprintln(c, host)
					io.Copy(c, c)
				}()
			}
		}()
	}
}

// client is a connection to such a server.
type client struct {
	net.Conn
	lines *bufio.Reader
	// from is where the server sees it come from.
	from string
}

func call(ns *harness.Namespace, address string) (*client, error) {
	c, err := ns.Dial(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(10 * time.Second))
	out := &client{Conn: c, lines: bufio.NewReader(c)}
	out.from, err = out.lines.ReadString('\n')
	out.from = strings.TrimSpace(out.from)
	if err != nil {
		c.Close()
		return nil, err
	}
	return out, nil
}

// held is a connection that stays open until the test ends.
func held(t *testing.T, ns *harness.Namespace, address string) *client {
	t.Helper()
	c, err := call(ns, address)
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// works wants an open connection to carry a line both ways.
func (c *client) works(t *testing.T, when string) {
	t.Helper()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	_, err := fmt.Fprintln(c, when)
	got, readErr := c.lines.ReadString('\n')
	if err = errors.Join(err, readErr); err != nil || got != when+"\n" {
		t.Errorf("the connection to %s %s: %q, %v", c.RemoteAddr(), when, got, err)
	}
}

// route is a call, and how it has to go.
type route struct {
	name    string
	ns      *harness.Namespace
	to      string
	from    string // where the server has to see it come from
	counter string // that has to count it; empty: none does
}

func (r route) check(m *lab) {
	m.t.Helper()
	before := m.status().Counters
	c, err := call(r.ns, r.to)
	if err != nil {
		m.t.Errorf("%s: %v", r.name, err)
		return
	}
	c.Close()
	if c.from != r.from {
		m.t.Errorf("%s: it came from %s, want %s", r.name, c.from, r.from)
	}
	for name, n := range m.status().Counters {
		want := before[name]
		if name == r.counter {
			want++
		}
		if n != want {
			m.t.Errorf("%s: counter %s is %d, want %d", r.name, name, n, want)
		}
	}
}

// controlPlane is a TLS server. It refuses clients that speak HTTP/2.
func controlPlane(t *testing.T, ns *harness.Namespace) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Listener.Close()
	s.Listener = ns.Listen(t, ns.IP+":15012")
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of refused handshakes
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// A machine with the real Envoy from the first installation to the end.
func TestMachine(t *testing.T) {
	t.Parallel()
	m, there := pair(t)
	here := m.Namespace
	serve(t, here, ":8080", ":22")
	serve(t, there, ":8080", ":9090")
	m.Checks.ControlPlane = []string{controlPlane(t, there)}

	m.refused("no Envoy", "nothing listens on port 15001")
	kill := m.envoy()
	var old []*client
	for ns, addresses := range map[*harness.Namespace][]string{here: {"10.99.0.2:8080", "[fd99::2]:8080"},
		there: {"10.99.0.1:8080", "[fd99::1]:8080"}} {
		for _, a := range addresses {
			old = append(old, held(t, ns, a))
		}
	}
	m.must("install")
	for _, c := range old {
		c.works(t, "after the installation")
	}
	all := []route{
		{"outbound IPv4", here, "10.99.0.2:8080", "10.99.0.1", "outbound"},
		{"outbound IPv6", here, "[fd99::2]:8080", "fd99::1", "outbound"},
		{"inbound IPv4", there, "10.99.0.1:8080", "127.0.0.6", "inbound"},
		{"inbound IPv6", there, "[fd99::1]:8080", "::1", "inbound"},
		{"a service on this machine", here, "127.0.0.1:7000", "127.0.0.6", "inbound"},
		{"a service on this machine, IPv6", here, "127.0.0.1:7006", "::1", "inbound"},
	}
	untouched := []route{
		{"the own address", here, "10.99.0.1:8080", "10.99.0.1", ""},
		{"the own address, IPv6", here, "[fd99::1]:8080", "fd99::1", ""},
		{"loopback", here, "127.0.0.1:8080", "127.0.0.1", ""},
		{"loopback, IPv6", here, "[::1]:8080", "::1", ""},
		{"an excluded port", here, "10.99.0.2:9090", "10.99.0.1", ""},
		{"an excluded range", here, "10.99.0.3:8080", "10.99.0.1", ""},
		{"SSH", there, "10.99.0.1:22", "10.99.0.2", ""},
		{"SSH, IPv6", there, "[fd99::1]:22", "fd99::2", ""},
	}
	for _, r := range slices.Concat(all, untouched) {
		r.check(m)
	}
	for _, a := range []string{"127.0.0.1:15001", "10.99.0.1:15006", "[fd99::1]:15006"} {
		for _, ns := range []*harness.Namespace{here, there} {
			if _, err := call(ns, a); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a connection to Envoy's own port %s: %v, want %v", a, err, syscall.ECONNREFUSED)
			}
		}
	}

	kill()
	for _, r := range all[:4] {
		if _, err := call(r.ns, r.to); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s without Envoy: %v, want %v", r.name, err, syscall.ECONNREFUSED)
		}
	}
	if got := m.must("boot"); got != "true" {
		t.Errorf("boot says %s", got)
	}
	for _, r := range untouched {
		r.check(m)
	}
	for _, c := range old {
		c.works(t, "after Envoy ended")
	}

	m.envoy()
	for _, r := range all {
		old = append(old, held(t, r.ns, r.to))
	}
	m.must("boot")
	for _, c := range old {
		c.works(t, "after the rules were replaced")
	}
	m.must("remove")
	for _, c := range old {
		c.works(t, "after the removal")
	}
	for _, r := range append(all[:4:4], untouched...) {
		r.from, r.counter = map[*harness.Namespace]string{here: "10.99.0.1", there: "10.99.0.2"}[r.ns], ""
		if strings.Contains(r.to, "fd99") {
			r.from = strings.Replace(r.from, "10.99.0.", "fd99::", 1)
		} else if strings.Contains(r.to, "[::1]") || strings.Contains(r.to, "127.0.0.1") {
			continue
		}
		r.name += " after the removal"
		r.check(m)
	}
	if s := m.status(); s.Installed || !s.Draining || !s.Confirmed.IsZero() {
		t.Errorf("status after the removal: %+v", s)
	}
	if got := m.must("boot"); got != "false" {
		t.Errorf("boot after the removal says %s", got)
	}
	m.must("delete")
	left, err := m.Program("sh", "-c", "nft list ruleset; ip -6 address show dev lo | grep fd61; true").CombinedOutput()
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %s, %v", left, err)
	}
}
