package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every unit is one that systemd accepts, and starts a program of the packages.
func TestUnits(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name := range contents() {
		run(t, "dpkg-deb", "-x", built(t, name+"_*_amd64.deb"), root)
	}
	units, err := filepath.Glob(root + "/usr/lib/systemd/system/*")
	if err != nil || len(units) != 7 {
		t.Errorf("%d units, want 7: %v", len(units), err)
	}
	ours := regexp.MustCompile(`/usr/(bin|lib)/ashore`)
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		text = ours.ReplaceAll(text, []byte(root+"$0"))
		path := filepath.Join(root, strings.Replace(filepath.Base(unit), "@.", "@0.", 1)) // an instance of a template
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		out := run(t, "sh", "-c", "systemd-analyze verify --man=no "+path+" 2>&1") // warnings are on standard error
		if out != "" {
			t.Errorf("%s: %s", filepath.Base(unit), out)
		}
	}
}

// No unit that runs for long is exposed more than 3.0 in systemd's figures.
func TestSandbox(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{
		"ashored.service", "ashore-agent.service", "ashore-agent@.service", "ashore-envoy@.service",
		"ashore-intercept.service",
	} {
		path, err := filepath.Abs("../" + unit)
		if err != nil {
			t.Fatal(err)
		}
		run(t, "systemd-analyze", "security", "--no-pager", "--offline=yes", "--threshold=30", path)
	}
}

// At shutdown systemd stops the agents before every Envoy, as agents drain them.
func TestShutdownOrder(t *testing.T) {
	t.Parallel()
	for unit, want := range map[string]string{
		"ashore-envoy@.service": `(?m)^Before=.*\bashore-envoys\.target\b`,
		"ashore-agent.service":  `(?m)^Wants=.*\bashore-envoys\.target\nAfter=.*\bashore-envoys\.target\b`,
		"ashore-agent@.service": `(?m)^Wants=.*\bashore-envoys\.target\nAfter=.*\bashore-envoys\.target\b`,
	} {
		text, err := os.ReadFile("../" + unit)
		if err != nil || !regexp.MustCompile(want).Match(text) {
			t.Errorf("%s: %v, want %s in\n%s", unit, err, want, text)
		}
	}
}

// An agent whose address comes late, by DHCP for example, starts then: systemd does not give up.
func TestAgentStartsAgain(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"ashore-agent.service", "ashore-agent@.service"} {
		text, err := os.ReadFile("../" + unit)
		if err != nil || !regexp.MustCompile(`(?m)^StartLimitIntervalSec=0$`).Match(text) {
			t.Errorf("%s: %v, a limit of starts in\n%s", unit, err, text)
		}
	}
}

// systemd, as root, reads no file that belongs to the agent or to Envoy.
func TestNoEnvironmentFile(t *testing.T) {
	t.Parallel()
	units, err := filepath.Glob("../*.service")
	if err != nil || len(units) != 5 {
		t.Errorf("%d units, want 5: %v", len(units), err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil || regexp.MustCompile(`(?m)^EnvironmentFile=`).Match(text) {
			t.Errorf("%s: %v, an environment file in\n%s", unit, err, text)
		}
	}
}

// The rule of polkit matches the units of Envoy's epochs, and no other.
func TestPolkitUnits(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../ashore-agent.rules")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`/(\^.*\$)/\.test`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("no pattern in %s", text)
	}
	pattern := regexp.MustCompile(string(found[1]))
	for unit, want := range map[string]bool{
		"ashore-envoy@0.service": true, "ashore-envoy@web-1.shop-12.service": true,
		"ashore-agent.service": false, "ashored.service": false, "ashore-envoy@.socket": false,
		"ashore-envoy@0.service ssh.service": false, "x-ashore-envoy@0.service": false,
	} {
		if got := pattern.MatchString(unit); got != want {
			t.Errorf("%s: %t, want %t", unit, got, want)
		}
	}
}
