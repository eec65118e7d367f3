package machines

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// page is what the application on backend answers: whom Envoy says the caller to be.
const page = `server {
	listen 80;
	listen [::]:80;
	location / { default_type text/plain; return 200 "backend saw: $http_x_forwarded_client_cert\n"; }
}
`

// suite is the machines of the tests, which follow one upon the other.
type suite struct {
	*lab
	plane, backend, client, edge *machine
	packages                     string            // the folder of the packages
	pasted                       map[string]string // what was pasted to join, by machine
}

func (s *suite) machines() []*machine { return []*machine{s.plane, s.backend, s.client, s.edge} }

// machine is the one of that name.
func (s *suite) machine(name string) *machine {
	for _, m := range s.machines() {
		if m.name == name {
			return m
		}
	}
	s.t.Fatalf("docs/install.md speaks of a machine %q", name)
	return nil
}

func TestMachines(t *testing.T) {
	needRoot(t)
	at, err := filepath.Abs(tree)
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, at)
	s := &suite{lab: l, packages: built, pasted: map[string]string{}}
	s.serveOutside()
	s.plane, s.backend, s.client, s.edge = l.newMachine("plane", 10), l.newMachine("backend",
		11), l.newMachine("client", 12), l.newMachine("edge", 13)
	for _, m := range s.machines() {
		m.booted()
	}
	s.backend.write("/etc/nginx/sites-enabled/default", page)
	s.backend.run("sed -i 's/worker_connections .*/worker_connections 8192;/' /etc/nginx/nginx.conf; systemctl enable --now nginx")
	defer func() {
		if t.Failed() {
			s.logs(t)
		}
	}()
	before := map[*machine]string{}
	for _, m := range s.machines() {
		before[m] = m.run(inventory)
	}
	for i, step := range []struct {
		name string
		run  func(t *testing.T, s *suite)
	}{
		{"two machines in 15 minutes", twoMachines},
		{"the outside world", outsideWorld},
		{"joined again", joinAgain},
		{"two services on a machine", twoServices},
		{"two identities on a machine", twoIdentities},
		{"rules that cut the control plane off", rulesUndone},
		{"rules that another program deletes", rulesFlushed},
		{"a stopped application", stoppedApplication},
		{"firewalls", firewalls},
		{"restarts", restarts},
		{"Envoy crashed", envoyCrashed},
		{"backup", func(_ *testing.T, s *suite) { s.follow("Backup") }},
		{"reboots", rebooted},
		{"left and removed", func(t *testing.T, s *suite) {
			for _, m := range []*machine{s.backend, s.client, s.edge} {
				removed(t, m, before[m])
			}
		}},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			former := l.t
			l.t = t
			defer func() { l.t = former }()
			step.run(t, s)
		}) && i == 0 {
			return // nothing works without it
		}
	}
}

// logs shows what the services of the machines wrote.
func (s *suite) logs(t *testing.T) {
	for _, m := range s.machines() {
		if m.init != 0 {
			out, err := m.try("journalctl --no-pager -o cat -n 60 -u 'ashore*'; systemctl --no-pager --failed")
			t.Logf("%s: %v\n%s", m.name, err, out)
		}
	}
}

// logsSince shows what agents and Envoys wrote since a time.
func (s *suite) logsSince(t *testing.T, begun time.Time) {
	for _, m := range []*machine{s.backend, s.client, s.edge} {
		out, err := m.try(fmt.Sprintf("journalctl --no-pager -o short-precise --since @%d -u 'ashore*' | grep -v 'server/server.cc:[45]' | cut -c1-300; curl -s --unix-socket /run/ashore-agent/envoy/admin.sock 'http://envoy/stats?usedonly' | grep -E 'listener|downstream' | grep -v ': 0$'", begun.Unix()))
		t.Logf("%s: %v\n%s", m.name, err, out)
	}
}

// built is where "make package" puts the packages.
const built = "../../../dist"

// makeNext builds the next version of the packages for the machines. They stay for the next time,
// as it takes long to pack Envoy.
func makeNext(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../.tools/packages-next")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("make", "package", "DIST="+dir, "ARCHES="+runtime.GOARCH, "VERSION=99.0.0", "ENVOY_RELEASE=2")
	cmd.Dir = "../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return dir
}

// give copies packages to a machine, as scp does.
func (s *suite) give(m *machine, patterns ...string) {
	s.t.Helper()
	for _, p := range patterns {
		files, err := filepath.Glob(filepath.Join(s.packages, p+"_"+runtime.GOARCH+".deb"))
		if err != nil || len(files) == 0 {
			s.t.Fatalf("no package %s: %v", p, err)
		}
		m.copy("/root", files...)
	}
}

// serveOutside serves DNS and HTTP outside the mesh, on all addresses of the test's own.
func (s *suite) serveOutside() {
	s.t.Helper()
	dns := exec.Command("nsenter", "--net=/run/netns/"+s.name, "chroot", s.tree, "dnsmasq", "--keep-in-foreground",
		"--no-resolv", "--no-hosts", "--pid-file=",
		"--user=root", "--address=/outside.example.org/"+outside4, "--address=/outside.example.org/"+outside6, "--log-facility=-")
	s.background(dns)
	s.serveHTTP(outside4+":8080", "outside")
	s.serveHTTP("["+outside6+"]:8080", "outside")
}

// background runs a program until the test ends.
func (s *suite) background(cmd *exec.Cmd) {
	s.t.Helper()
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", cmd, out.String())
		}
	})
}

// join makes a token for a group on the control plane and pastes what is printed on a machine, by
// that shell.
func (s *suite) join(m *machine, group string) string {
	s.t.Helper()
	s.give(m, "ashore-agent_*", "ashore-envoy_*")
	s.pasted[m.name] = s.token(group)
	return m.run(s.pasted[m.name])
}

// token makes a token for a group on the control plane, which may not have read the group yet. It
// returns the printed commands.
func (s *suite) token(group string) string {
	s.t.Helper()
	return s.plane.eventually(5*time.Second, "ashorectl join-token create --group "+group+" 2>/dev/null")
}

// twoMachines follows docs/install.md.
func twoMachines(t *testing.T, s *suite) {
	s.give(s.plane, "ashore_*")
	for _, c := range documented(t, "Two machines in 15 minutes") {
		m := s.machine(c.where)
		group, token := "", false
		if _, rest, ok := strings.Cut(c.script, "join-token create --group "); ok {
			group, token = strings.TrimSpace(rest), true
		}
		if token {
			_, name, _ := strings.Cut(group, "/")
			t.Log(s.join(s.machine(name), group))
			continue
		}
		t.Log(m.run(c.script))
	}
	want := "URI=spiffe://cluster.local/ns/shop/sa/client"
	if out := s.client.run("curl -sS http://backend.shop.svc.cluster.local/"); !strings.Contains(out, want) {
		t.Errorf("backend answered %q, want %q", out, want)
	}
	if status, body, err := s.get("http://" + s.backend.ip4 + "/"); err == nil {
		t.Errorf("plaintext from outside the mesh was answered: %d %s", status, body)
	}
}

// follow runs the commands of a section of docs/install.md.
func (s *suite) follow(section string) {
	s.t.Helper()
	for _, c := range documented(s.t, section) {
		s.machine(c.where).run(c.script)
	}
}

// load requests a URL while f runs, from a machine or, if that is nil, from outside. The test fails
// when a request fails.
func (s *suite) load(from *machine, url string, f func()) {
	s.t.Helper()
	program := filepath.Join(s.dir, "load")
	if _, err := os.Stat(program); err != nil {
		build := exec.Command("go", "build", "-o", program, "./load")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			s.t.Fatalf("build the load: %v\n%s", err, out)
		}
	}
	cmd := exec.Command("nsenter", "--net=/run/netns/"+s.name, program, url)
	if from != nil {
		from.copy("/usr/local/bin", program)
		cmd = from.command("exec load " + url)
	}
	var out, errs lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	end, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	ended := sync.OnceValue(func() error { return errors.Join(end.Close(), cmd.Wait()) })
	defer ended() // when f fails
	<-time.After(time.Second)
	f()
	<-time.After(time.Second)
	err = ended()
	var r struct {
		Sent, Failed int
		Errors       []string
	}
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		s.t.Fatalf("load printed %q %q: %v", out.String(), errs.String(), err)
	}
	s.t.Logf("%s: %d of %d requests failed", url, r.Failed, r.Sent)
	if err != nil || r.Failed > 0 || r.Sent < 300 {
		s.t.Errorf("%s: %d of %d requests failed: %v %s", url, r.Failed, r.Sent, err, strings.Join(r.Errors, "\n"))
	}
}
