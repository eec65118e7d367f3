package intercept

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testchild"
)

// What would send Envoy's connections back to it, or break the machine in another way, is refused
// before anything is installed, with what to do.
func TestInstallRefuses(t *testing.T) {
	t.Parallel()
	m, there := pair(t)
	config := m.Config
	for _, tc := range []struct {
		name string
		edit func(*Config)
		want string
	}{
		{"no such user", func(c *Config) { c.User = "nosuch" }, "no rules were installed: there is no user nosuch on " +
			"this machine: install the packages"},
		{"no such group", func(c *Config) { c.Group = "nosuch" }, "no rules were installed: there is no group nosuch"},
		{"excluded user", func(c *Config) { c.Settings.ExcludeUsers = []string{"nosuch"} },
			"interception.excludeUsers: there is no user nosuch"},
	} {
		m.Config = config
		tc.edit(&m.Config)
		m.refused(tc.name, tc.want)
	}
	m.Config = config

	l := m.Listen(t, "127.0.0.1:15001")
	m.refused("Envoy as root", fmt.Sprintf("%.15s (process %d) listens on port 15001 as user 0 and group 0; "+
		"the rules would send its own connections back to it: run Envoy as user daemon (1) and group daemon (1)",
		filepath.Base(os.Args[0]), os.Getpid()))
	l.Close()

	kill := m.envoyWith("false", "--inh-caps", "-all")
	m.refused("Envoy without the right", "listens on port 15001 without CAP_NET_RAW")
	kill()

	m.envoy()
	m.Checks.ControlPlane = []string{there.IP}
	m.refused("no address", "no rules were installed: address 10.99.0.2: missing port in address")
}

// Rules with which a check fails are undone, and so are those whose installation is interrupted.
func TestInstallUndone(t *testing.T) {
	t.Parallel()
	m, there := pair(t)
	m.envoy()
	sshd := filepath.Join(t.TempDir(), "sshd")
	if err := os.Symlink(os.Args[0], sshd); err != nil {
		t.Fatal(err)
	}
	ssh := m.Program(sshd, "sshd")
	wait, err := testchild.Start(ssh)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = ssh.Process.Kill() // it is a failure that Wait returns
		_ = wait()
	}()
	good := m.order
	good.Checks.ControlPlane = []string{controlPlane(t, there)}

	m.order = good
	m.Checks.ControlPlane = []string{"10.99.0.2:15013"}
	m.refused("control plane", "the rules were removed again: control plane: 10.99.0.2:15013 does not answer")

	m.order = good
	m.Checks.Ready = "http://10.99.0.2:15013/healthz/ready"
	m.refused("agent", "the rules were removed again: agent: Get")

	m.order = good
	m.Config.DNSPort = 15053
	m.refused("DNS", "the rules were removed again: dns: ")

	m.order = good
	m.must("install")
	if got := m.status().Settings.ExcludeInboundPorts; !slices.Contains(got, "2222") {
		t.Errorf("the ports %q are excluded, want sshd's too", got)
	}
	m.Config.Settings.ExcludeInboundPorts = nil
	m.Checks.ControlPlane = append([]string{"10.99.0.2:15013"}, m.Checks.ControlPlane[1:]...)
	if _, err := m.do("install"); err == nil || !strings.Contains(err.Error(),
		"the rules were replaced by those that were confirmed before: control plane") {
		t.Errorf("after rules that were confirmed: %v", err)
	}
	serve(t, m.Namespace, ":22", ":8080")
	route{"what was excluded before", there, "10.99.0.1:22", "10.99.0.2", ""}.check(m)
	route{"what was not", there, "10.99.0.1:8080", "127.0.0.6", "inbound"}.check(m)
	m.marked("after the installation", true)
	m.must("delete")
	m.marked("after the removal", false)

	m.Machine.Timeout = time.Minute
	cmd, _, problem := m.start("install")
	harness.Eventually(t, "the rules are there", func() error {
		text, err := m.do("status") // it may fail while the kernel replaces the table
		if err == nil && !strings.Contains(text, `"Installed":true`) {
			err = fmt.Errorf("status is %s", text)
		}
		return err
	})
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(problem.String(),
		"the rules were removed again: interrupted before the checks had succeeded: control plane") {
		t.Errorf("after a hangup: %v, %s", err, problem)
	}
	if s := m.status(); s.Installed {
		t.Error("the rules are there after a hangup")
	}
}

// With the rules, the machine's DNS servers have to answer as they did before.
func TestOutside(t *testing.T) {
	t.Parallel()
	m, there := pair(t)
	m.Machine.Timeout = 30 * time.Second // on a busy machine the other checks take a while
	m.Checks.ControlPlane = []string{controlPlane(t, there)}
	m.Config.DNSPort = 15053
	m.envoy()
	m.Command("ip", "address", "add", Address6+"/128", "dev", "lo", "nodad")
	for _, host := range []string{"127.0.0.1", Address6} {
		serveDNS(t, m.Namespace, net.JoinHostPort(host, "15053"), dns.RcodeServerFailure) // the agent
	}
	m.must("install") // no server answered before
	m.must("delete")
	m.Command("ip", "address", "replace", nameServer(), "dev", "lo")
	serveDNS(t, m.Namespace, net.JoinHostPort(nameServer(), "53"), dns.RcodeRefused)
	m.refused("outside", "the rules were removed again: outside: the agent does not reach the DNS servers")
}

// marked wants the marker of installed rules to exist, or not.
func (m *lab) marked(when string, want bool) {
	m.t.Helper()
	if _, err := os.Stat(m.Machine.Installed); (err == nil) != want {
		m.t.Errorf("%s: the marker: %v, want it: %t", when, err, want)
	}
}

// Rules that cannot be installed at boot do not count as installed. A user that only a control
// plane on this machine has may be gone.
func TestBootFails(t *testing.T) {
	t.Parallel()
	m, there := pair(t)
	m.Checks.ControlPlane = []string{controlPlane(t, there)}
	m.envoy()
	m.Config.Settings.ExcludeUsers = []string{"nobody"}
	m.must("install")
	m.marked("after the installation", true)
	record := filepath.Join(m.Machine.Folder, recordFile)
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), `"ashore"`) || !strings.Contains(string(text), `"65534"`) ||
		strings.Contains(string(text), `"nobody"`) {
		t.Errorf("the record names users, want their numbers:\n%s", text)
	}
	text = []byte(strings.ReplaceAll(string(text), `"`+testUser+`"`, `"nosuch"`))
	if err := os.WriteFile(record, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.do("boot"); err == nil || !strings.Contains(err.Error(), "there is no user nosuch") {
		t.Errorf("boot: %v", err)
	}
	m.marked("after a boot that failed", false)
}

// Confirmed rules come back when another program deletes them. If that is not possible they do not
// count as installed. They do not come back after a removal.
func TestWatch(t *testing.T) {
	t.Parallel()
	m, there := pair(t)
	m.Checks.ControlPlane = []string{controlPlane(t, there)}
	m.envoy()
	m.must("install")
	record := filepath.Join(m.Machine.Folder, recordFile)
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	broken := []byte(strings.ReplaceAll(string(text), `"`+testUser+`"`, `"nosuch"`))
	if err := os.WriteFile(record, broken, 0o600); err != nil {
		t.Fatal(err)
	}
	m.Command("nft", "delete", "table", "inet", "ashore") // as at boot
	watch, out, problem := m.start("watch")
	harness.Eventually(t, "the first attempt has failed", func() error {
		if _, err := os.Stat(m.Machine.Installed); err == nil {
			return errors.New("the marker exists")
		}
		return nil
	})
	if err := os.WriteFile(record, text, 0o600); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "a later one succeeds", func() error { _, err := os.Stat(m.Machine.Installed); return err })
	installed := func(want bool) func() error {
		return func() error {
			text, err := m.do("status") // it may fail while the kernel replaces the table
			if err == nil && strings.Contains(text, `"Installed":true`) != want {
				err = fmt.Errorf("status is %s", text)
			}
			return err
		}
	}
	for range 2 {
		m.Command("nft", "flush", "ruleset")
		harness.Eventually(t, "the rules are back", installed(true))
	}

	if err := os.WriteFile(record, broken, 0o600); err != nil {
		t.Fatal(err)
	}
	m.Command("nft", "delete", "table", "inet", "ashore")
	harness.Eventually(t, "the marker goes", func() error {
		if _, err := os.Stat(m.Machine.Installed); err == nil {
			return errors.New("it exists")
		}
		return nil
	})
	if err := os.WriteFile(record, text, 0o600); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the rules are back once they can be installed", installed(true))
	m.marked("once they are back", true)

	if err := errors.Join(watch.Process.Signal(syscall.SIGTERM), watch.Wait(), installed(true)()); err != nil {
		t.Errorf("after its end: %v, %s", err, problem)
	}
	m.marked("after its end", true)
	if got, want := strings.Count(out.String(), "the confirmed rules are installed"), 4; got != want ||
		strings.Count(out.String(), "no rules were installed: there is no user nosuch") != 2 {
		t.Errorf("installed %d times, want %d:\n%s", got, want, out)
	}

	m.Command("rm", m.Machine.Installed)
	watch, _, problem = m.start("watch")
	harness.Eventually(t, "another watch begins", func() error { _, err := os.Stat(m.Machine.Installed); return err })
	m.must("delete")
	m.Command("nft", "add", "table", "inet", "other")
	m.Command("nft", "flush", "ruleset")
	if err := errors.Join(watch.Process.Signal(syscall.SIGTERM), watch.Wait(), installed(false)()); err != nil {
		t.Errorf("after a removal: %v, %s", err, problem)
	}
}

// The end of the watch does not interrupt an attempt. Otherwise the marker would go while the rules are
// installed.
func TestRestoreAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nft"), []byte("#!/bin/sh\necho table inet ashore\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	m := Machine{Folder: dir, Installed: filepath.Join(dir, "installed")}
	if err := m.mark(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if installed, err := m.restore(ctx); installed || err != nil {
		t.Errorf("restore = %t, %v", installed, err)
	}
	if _, err := os.Stat(m.Installed); err != nil {
		t.Error(err)
	}
}

// A machine whose kernel has no nf_tables has no rules to remove, unless some were installed.
func TestRemoveWithoutKernel(t *testing.T) {
	dir := t.TempDir()
	const nft = "#!/bin/sh\necho 'Operation not supported' >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "nft"), []byte(nft), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	m := Machine{Folder: dir, Installed: filepath.Join(dir, "installed")}
	if err := errors.Join(m.Remove(t.Context()), m.Delete(t.Context())); err != nil {
		t.Errorf("without rules: %v", err)
	}
	if err := m.mark(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Remove(t.Context()); err == nil || !strings.Contains(err.Error(), "Operation not supported") {
			t.Errorf("with rules: %v", err)
		}
	}
}

// Queries go to the agent, of both transports and IP versions, also those to a resolver of this
// machine.
func TestCaptureDNS(t *testing.T) {
	t.Parallel()
	m, there := pair(t)
	m.Config.Settings.ExcludeUsers = []string{"nobody"}
	m.Config.DNSPort = 15053
	m.Checks.ControlPlane = []string{controlPlane(t, there)}
	m.envoy()
	m.Command("ip", "address", "add", Address6+"/128", "dev", "lo", "nodad")
	for _, host := range []string{"127.0.0.1", Address6} {
		serveDNS(t, m.Namespace, net.JoinHostPort(host, "15053"), 'a')
	}
	m.must("install")
	before := m.status().Counters["dns"]
	for i, server := range []string{"10.99.0.2", "fd99::2", "127.0.0.53", "::1"} {
		for j, network := range []string{"udp", "tcp"} {
			err := m.Namespace.Do(func() error { _, err := askDNS(t.Context(), network, server); return err })
			if err != nil {
				t.Errorf("%s to %s: %v", network, server, err)
			}
			if got, want := m.status().Counters["dns"], before+uint64(2*i+j+1); got != want {
				t.Errorf("%s to %s: the rules counted %d queries, want %d", network, server, got, want)
			}
		}
	}

	// The agent forwards a query to the same server from the same port: the kernel must not take it
	// for the captured one.
	serveDNS(t, there, "10.99.0.2:53", 'u')
	for _, tc := range []struct{ group, want string }{{"root", "a"}, {testUser, "u"}} {
		out, err := m.Program("setpriv", "--regid", tc.group, "--clear-groups", os.Args[0], "query").CombinedOutput()
		if string(out) != tc.want {
			t.Errorf("a query of the group %s was answered by %q (%v), want %q", tc.group, out, err, tc.want)
		}
	}

	before = m.status().Counters["dns"]
	for i, user := range []string{"nobody", "root"} {
		m.Command("setpriv", "--reuid", user, "--clear-groups", "bash", "-c", "exec 3<>/dev/tcp/10.99.0.2/53")
		if got, want := m.status().Counters["dns"], before+uint64(i); got != want {
			t.Errorf("after a query of %s, while nobody is excluded, %d were counted, want %d", user, got, want)
		}
	}
}

// serveDNS answers every query with its own bytes, as an answer that has the server's name in its
// fourth byte.
func serveDNS(t *testing.T, ns *harness.Namespace, address string, name byte) {
	t.Helper()
	l := ns.Listen(t, address)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			query := make([]byte, 512)
			if n, err := c.Read(query); err == nil {
				query[4] |= 0x80
				c.Write(query[:n])
			}
			c.Close()
		}
	}()
	var p net.PacketConn
	if err := ns.Do(func() (err error) { p, err = net.ListenPacket("udp", address); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	go func() {
		query := make([]byte, 512)
		for {
			n, from, err := p.ReadFrom(query)
			if err != nil {
				return
			}
			query[2] |= 0x80
			query[3] = name
			p.WriteTo(query[:n], from)
		}
	}()
}

// queryFrom sends a query from one port always, and prints who answered.
func queryFrom() error {
	c, err := net.DialUDP("udp", &net.UDPAddr{Port: 5353}, &net.UDPAddr{IP: net.IPv4(10, 99, 0, 2), Port: 53})
	if err != nil {
		return err
	}
	defer c.Close()
	answer := make([]byte, 100)
	_, err = c.Write(make([]byte, 12))
	err = errors.Join(err, c.SetDeadline(time.Now().Add(5*time.Second)))
	if _, readErr := c.Read(answer); err != nil || readErr != nil {
		return errors.Join(err, readErr)
	}
	_, err = os.Stdout.Write(answer[3:4])
	return err
}

// With Docker's rules: what containers call on this machine goes through Envoy, and a published
// port bypasses it.
func TestDocker(t *testing.T) {
	t.Parallel()
	m, there := pair(t)
	m.Checks.ControlPlane = []string{controlPlane(t, there)}
	m.Command("sysctl", "-qw", "net.ipv4.ip_forward=1")
	m.Command("ip", "link", "add", "docker0", "type", "bridge")
	m.Command("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "eth1")
	m.Command("ip", "link", "set", "veth0", "master", "docker0", "up")
	m.Command("ip", "link", "set", "docker0", "up")
	m.Command("ip", "address", "add", "10.98.0.1/24", "dev", "docker0")
	m.Move("eth1", there)
	there.Command("ip", "address", "add", "10.98.0.2/24", "dev", "eth1")
	there.Command("ip", "link", "set", "eth1", "up")
	rules, err := os.ReadFile("testdata/docker.nft")
	if err != nil {
		t.Fatal(err)
	}
	m.NFT(string(rules))
	serve(t, m.Namespace, ":8080")
	serve(t, there, ":8080")
	m.envoy()
	m.must("install")
	for _, r := range []route{
		{"a container calls this machine", there, "10.98.0.1:8080", "127.0.0.6", "inbound"},
		{"the network calls this machine", there, "10.99.0.1:8080", "127.0.0.6", "inbound"},
		{"this machine calls the network", m.Namespace, "10.99.0.2:8080", "10.99.0.1", "outbound"},
		{"this machine calls a container", m.Namespace, "10.98.0.2:8080", "10.98.0.1", "outbound"},
		{"the network calls a published port", there, "10.99.0.1:8081", "10.98.0.1", ""},
	} {
		r.check(m)
	}
}
