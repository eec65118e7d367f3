package machines

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// reaches asks for the service backend on client until the answer is as wanted.
func (s *suite) reaches(within time.Duration) {
	s.t.Helper()
	s.client.eventually(within,
		"curl -sS --fail --max-time 2 http://backend.shop.svc.cluster.local/ | grep -q 'backend saw'")
}

// outsideWorld: what is not of the mesh is reached as before, by both families, and SSH answers.
func outsideWorld(t *testing.T, s *suite) {
	for _, url := range []string{"http://outside.example.org:8080/", "-4 http://outside.example.org:8080/",
		"-6 http://outside.example.org:8080/", "http://" + outside4 + ":8080/", "-g http://[" + outside6 + "]:8080/"} {
		if out := s.client.run("curl -sS --max-time 5 " + url); out != "outside\n" {
			t.Errorf("%s: %q", url, out)
		}
	}
	for _, m := range []*machine{s.client, s.backend} {
		for _, ip := range []string{m.ip4, m.ip6} {
			if banner := s.banner(net.JoinHostPort(ip, "22")); !strings.HasPrefix(banner, "SSH-2.0") {
				t.Errorf("SSH at %s says %q", ip, banner)
			}
		}
	}
	for _, url := range []string{"http://" + s.backend.ip4 + "/", "http://[" + s.backend.ip6 + "]/"} {
		if status, body, err := s.get(url); err == nil {
			t.Errorf("plaintext from outside the mesh to %s was answered: %d %s", url, status, body)
		}
	}
	for _, family := range []string{"-4", "-6"} { // the virtual addresses of the service
		if out := s.client.run("curl -sS " + family + " http://backend.shop.svc.cluster.local/"); !strings.Contains(out,
			"sa/client") {
			t.Errorf("curl %s: %q", family, out)
		}
	}
	if out := s.backend.run("curl -sS http://127.0.0.1/; curl -sS -g http://[::1]/; curl -sS http://" + s.backend.ip4 + "/"); strings.Count(out, "backend saw") != 3 {
		t.Errorf("backend reaches itself: %q", out)
	}
}

// banner is the first line that a server sends.
func (s *suite) banner(address string) string {
	c, err := s.dial("tcp", address)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	b := make([]byte, 64)
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second)) // an error shows at the read
	n, err := c.Read(b)
	if err != nil {
		return err.Error()
	}
	return string(b[:n])
}

// joinAgain: pasting the line again changes nothing, as root and with sudo.
func joinAgain(t *testing.T, s *suite) {
	state := "find /var/lib/ashore-agent \\( -name '*.pem' -o -name agent.yaml \\) | sort | xargs sha256sum; nft list table inet ashore | grep -v counter; systemctl show -p MainPID ashore-agent 'ashore-envoy@*'"
	before := s.client.run(state)
	s.client.run(s.pasted["client"])
	if after := s.client.run(state); after != before {
		t.Errorf("after joining again:\n%s\nbefore:\n%s", after, before)
	}
	s.edge.run("useradd --create-home --shell /bin/bash anna; echo 'anna ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/anna")
	s.follow("A gateway")
	paste := s.token("edge/edge")
	s.give(s.edge, "ashore-agent_*", "ashore-envoy_*")
	s.edge.run("mv /root/*.deb /home/anna/")
	s.edge.write("/home/anna/paste.sh", strings.Replace(paste, "--group edge/edge", "--group edge/edge --type router",
		1))
	s.edge.run("runuser -u anna -- bash -c 'cd; bash -e paste.sh'")
	s.edge.run("ashore-agent status")
}

// twoServices: a machine serves a second service, on another port.
func twoServices(t *testing.T, s *suite) {
	s.plane.write("/etc/ashore/config/admin.yaml", `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: admin, namespace: shop}
spec:
  hosts: [admin.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8081, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: backend}}
`)
	s.backend.write("/etc/nginx/sites-enabled/admin", strings.ReplaceAll(strings.ReplaceAll(page, "80;", "8081;"),
		"backend saw", "admin saw"))
	s.backend.run("systemctl reload nginx")
	// Until the backend's Envoy has the port, it forwards requests as raw TCP, without the identity.
	const url = "http://admin.shop.svc.cluster.local:8081/"
	out := s.client.eventually(10*time.Second, "curl -sS --fail --max-time 2 "+url+" | grep sa/client")
	if !strings.Contains(out, "admin saw: ") {
		t.Errorf("the second service answered %q", out)
	}
}

// twoIdentities: a machine without interception runs another workload, at an address of its own. The
// application listens on loopback alone, and sends at a loopback address of its own.
func twoIdentities(t *testing.T, s *suite) {
	const address = prefix4 + "23"
	s.plane.write("/etc/ashore/config/api.yaml", `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: shop}
spec:
  hosts: [api.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8082, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: api}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: api, namespace: shop}
spec:
  metadata: {labels: {app: api}}
  template: {serviceAccount: api}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: api, namespace: shop}
spec:
  workloadSelector: {labels: {app: api}}
  egress:
  - {bind: 127.0.0.2, port: {number: 8081, name: http, protocol: HTTP}, hosts: ["*/*"]}
`)
	s.edge.run("mv /etc/nginx/sites-enabled/default /root/")
	s.edge.write("/etc/nginx/sites-enabled/api", strings.NewReplacer("listen 80;", "listen 127.0.0.1:8082;",
		"	listen [::]:80;\n", "", "backend saw", "api saw").Replace(page))
	s.edge.run("systemctl start nginx; ip address add " + address + "/24 dev host0")
	s.edge.run(s.token("shop/api --installed -- --name api-1 --address " + address + " --interception none"))
	out := s.client.eventually(10*time.Second, "curl -sS --fail --max-time 2 http://api.shop.svc.cluster.local:8082/")
	if !strings.Contains(out, "api saw: ") || !strings.Contains(out, "By=spiffe://cluster.local/ns/shop/sa/api") ||
		!strings.Contains(out, "sa/client") {
		t.Errorf("the second identity answered %q", out)
	}
	out = s.edge.eventually(10*time.Second,
		"curl -sS --fail --max-time 2 -H 'Host: admin.shop.svc.cluster.local' http://127.0.0.2:8081/")
	if !strings.Contains(out, "admin saw: ") || !strings.Contains(out, "sa/api") {
		t.Errorf("the second identity was seen as %q", out)
	}
	if status, _, err := s.get("http://" + address + ":8082/"); err == nil {
		t.Errorf("plaintext from outside the mesh was answered: %d", status)
	}
	if out := s.edge.run("ashore-agent status"); !strings.Contains(out, "sa/api") || !strings.Contains(out, "sa/edge") {
		t.Errorf("status shows not both:\n%s", out)
	}
	s.edge.run("ashore-agent leave --yes --state /var/lib/ashore-agent/api-1.shop; systemctl stop nginx; " +
		"rm -r /etc/nginx/sites-enabled/api /var/lib/nginx/*; mv /root/default /etc/nginx/sites-enabled/; " +
		"ip address del " + address + "/24 dev host0")
	s.edge.run("ashore-agent status")
}

// rulesUndone: rules with which the control plane cannot be reached are removed again. Here a
// firewall closes the control plane's port while they are checked.
func rulesUndone(t *testing.T, s *suite) {
	s.client.run("ashore-agent intercept remove")
	s.client.run("nft 'add table inet closed; add chain inet closed out { type filter hook output priority 10; }; " +
		"add rule inet closed out tcp dport 15012 drop'")
	begun := time.Now()
	out, err := s.client.try("ashore-agent intercept install")
	if took := time.Since(begun); took > 45*time.Second {
		t.Errorf("the rules were removed after %s, want 30s and the time of the last checks", took)
	}
	for _, want := range []string{"control plane: ", ":15012 does not answer", "the rules were removed again"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("install: %v, want %q in\n%s", err, want, out)
		}
	}
	if out, err := s.client.try("nft list table inet ashore"); err == nil {
		t.Errorf("rules are left:\n%s", out)
	}
	s.client.run("curl -sS --max-time 5 http://outside.example.org:8080/")
	s.client.run("nft delete table inet closed")
	s.client.run("ashore-agent intercept install")
	s.reaches(10 * time.Second)
}

// stoppedApplication: an application that stops leaves the endpoints, also for callers on its own
// machine, and comes back.
func stoppedApplication(t *testing.T, s *suite) {
	s.backend.run("systemctl stop nginx")
	for _, m := range []*machine{s.client, s.backend} {
		out := m.eventually(5*time.Second,
			"curl -sS --max-time 2 http://backend.shop.svc.cluster.local/ | grep 'no healthy upstream'")
		t.Log(m.name, out)
	}
	if out, err := s.plane.try("ashorectl get endpoints backend.shop.svc.cluster.local"); err != nil ||
		!strings.Contains(strings.ToLower(out), "unhealthy") {
		t.Errorf("endpoints of a stopped application: %v\n%s", err, out)
	}
	s.backend.run("systemctl start nginx")
	s.reaches(10 * time.Second)
}

// rebooted: with the control plane powered off, all machines boot and serve.
func rebooted(t *testing.T, s *suite) {
	s.plane.powerOff()
	for _, m := range []*machine{s.backend, s.client, s.edge} {
		m.powerOff()
	}
	for _, m := range []*machine{s.backend, s.client, s.edge} {
		m.boot()
	}
	start := time.Now()
	s.reaches(bootTime)
	t.Logf("served %s after boot", time.Since(start).Round(100*time.Millisecond))
	if status, _, err := s.get("http://" + s.backend.ip4 + "/"); err == nil {
		t.Errorf("after the boot, plaintext from outside the mesh was answered: %d", status)
	}
	s.plane.boot()
	s.plane.booted()
	s.plane.eventually(time.Minute,
		`test "$(ashorectl status -o json | grep -c '"id"')" -ge 3 || ashorectl status | grep -c sidecar`)
	s.reaches(10 * time.Second)
}

// restarts: nothing fails while parts of the mesh are restarted and upgraded, on the client, the
// server and the gateway.
func restarts(t *testing.T, s *suite) {
	s.packages = makeNext(t)
	upgrade := func(pkg string) func(*machine) {
		return func(m *machine) {
			m.run("rm -f /root/*.deb")
			s.give(m, pkg+"_*")
			m.run("dpkg -i /root/" + pkg + "_*.deb")
			if pkg == "ashore-envoy" { // its Envoy is the same one: of another time, it is another one for the agent
				m.run("touch /usr/lib/ashore/envoy; systemctl restart ashore-agent")
			}
		}
	}
	script := func(text string) func(*machine) { return func(m *machine) { m.run(text) } }
	for _, event := range []struct {
		name string
		run  func(*machine)
	}{
		{"agent restarted", script("systemctl restart ashore-agent")},
		{"agent killed", script("systemctl kill -s KILL ashore-agent")},
		{"agent upgraded", upgrade("ashore-agent")},
		{"Envoy's settings changed", script("mkdir -p /etc/ashore; echo 'envoy: {drainTime: 30s, parentShutdown: 5s}' > /etc/ashore/agent.yaml; systemctl restart ashore-agent")},
		{"Envoy upgraded", upgrade("ashore-envoy")},
	} {
		t.Run(event.name, func(t *testing.T) {
			former := s.t
			s.t = t
			begun := time.Now()
			defer func() {
				if s.t = former; t.Failed() {
					s.logsSince(t, begun)
				}
			}()
			s.load(s.client, "http://backend.shop.svc.cluster.local/", func() {
				s.load(nil, "http://"+s.edge.ip4+"/", func() {
					for _, m := range []*machine{s.backend, s.client, s.edge} {
						event.run(m)
						m.eventually(60*time.Second, "ashore-agent status")
					}
				})
			})
		})
	}
}

// rulesFlushed: rules that another program deletes are back within a second.
func rulesFlushed(t *testing.T, s *suite) {
	for _, m := range []*machine{s.client, s.backend} {
		m.run("printf '#!/usr/sbin/nft -f\nflush ruleset\n' > /root/nftables.conf; nft -f /root/nftables.conf")
		m.eventually(time.Second, "nft list table inet ashore | grep -q tproxy")
		m.run("rm /root/nftables.conf")
		m.eventually(20*time.Second, "ashore-agent status") // the step before closed the way to the control plane
	}
	if status, body, err := s.get("http://" + s.backend.ip4 + "/"); err == nil {
		t.Errorf("plaintext from outside the mesh was answered: %d %s", status, body)
	}
	s.reaches(5 * time.Second)
	s.backend.run("systemctl stop ashore-intercept; nft list table inet ashore; systemctl start ashore-intercept")
}

// envoyCrashed: an Envoy that took over by hot restart, and whose predecessor has ended, is back
// soon after a crash.
func envoyCrashed(t *testing.T, s *suite) {
	unit := strings.TrimSpace(s.client.eventually(30*time.Second, `units=$(systemctl list-units --plain --no-legend `+
		`--state=active 'ashore-envoy@*' | cut -d' ' -f1); test "$(wc -w <<< "$units")" = 1; echo "$units"`))
	if unit == "ashore-envoy@0.service" {
		t.Fatal("Envoy was not replaced before")
	}
	start := time.Now()
	s.client.run("systemctl kill -s KILL " + unit)
	s.client.eventually(10*time.Second, `test "$(systemctl show -p NRestarts --value `+unit+`)" = 1`)
	s.reaches(5 * time.Second)
	t.Logf("served %s after the crash", time.Since(start).Round(100*time.Millisecond))
	if out := s.client.run("systemctl show -p NRestarts,ActiveState " + unit); out != "NRestarts=1\nActiveState=active\n" {
		t.Errorf("%s: %s", unit, out)
	}
}

// firewalls: Debian's firewalls keep their policy, and the rules outlive their reloads.
func firewalls(t *testing.T, s *suite) {
	for _, firewall := range []struct{ start, reload, stop string }{
		{"systemctl start firewalld && firewall-cmd -q --add-service=ssh --add-service=http", "firewall-cmd -q --reload && firewall-cmd -q --add-service=http", "systemctl stop firewalld"},
		{"ufw allow 22/tcp && ufw allow 80/tcp && ufw --force enable", "ufw reload", "ufw --force disable"},
	} {
		s.backend.run(firewall.start)
		s.reaches(10 * time.Second)
		if out, err := s.client.try("curl -sS --max-time 2 http://admin.shop.svc.cluster.local:8081/ --fail"); err == nil {
			t.Errorf("%s: a closed port was reached: %s", firewall.start, out)
		}
		s.backend.run(firewall.reload)
		s.reaches(10 * time.Second)
		s.backend.run(firewall.stop)
		s.reaches(10 * time.Second)
	}
	s.backend.run("nft list tables | grep -v ' ashore$' | sed 's/^/delete /' | nft -f -") // ufw leaves its own
}

// inventory lists files, rules, users and services of a machine.
const inventory = `find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/tmp -o -path /root -o -path /var/log -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/lib/systemd -o -path /dev \) -prune -o -print | sort
nft list ruleset
sort /etc/passwd /etc/group
systemctl list-unit-files --state=enabled --no-legend
ip -o address show dev lo
cat /etc/resolv.conf
ps -eo comm= | sort -u | grep -E 'ashore|envoy' || true`

// removed: leave and purge leave nothing behind. What the tests brought goes first.
func removed(t *testing.T, m *machine, before string) {
	m.run("rm -rf /etc/nginx/sites-enabled/admin /usr/local/bin/load /etc/sudoers.d/anna; if id -u anna; then userdel --remove anna; rm -f /etc/subuid- /etc/subgid-; fi")
	m.run("ashore-agent leave --yes; apt-get purge -y ashore-agent ashore-envoy")
	after := m.run(inventory)
	for _, d := range difference(before, after) {
		t.Errorf("%s: %s", m.name, d)
	}
}

// difference are the lines that only one of two texts has.
func difference(before, after string) (out []string) {
	had, has := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(before) {
		had[line] = true
	}
	for line := range strings.Lines(after) {
		if has[line] = true; !had[line] {
			out = append(out, fmt.Sprintf("new: %s", strings.TrimSpace(line)))
		}
	}
	for line := range strings.Lines(before) {
		if !has[line] {
			out = append(out, fmt.Sprintf("missing: %s", strings.TrimSpace(line)))
		}
	}
	return out
}
