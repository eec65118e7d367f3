// Package packaging tests the packages that "make package" put into dist, and the units of the
// folder systemd.
package packaging

import (
	"bytes"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dist is where "make package" puts the packages.
const dist = "../../dist"

// run returns what a program writes.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil && os.Geteuid() != 0 {
		t.Skipf("%s is missing, and only root can install it: %v", name, err)
	}
	cmd := exec.Command(name, args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, errOut.Bytes())
	}
	return string(out)
}

// queryRPM asks rpm about a file.
func queryRPM(t *testing.T, file string, args ...string) string {
	t.Helper()
	return run(t, "rpm", append([]string{"-qp", "--nosignature", file}, args...)...)
}

// built returns the one package in dist whose name matches.
func built(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dist, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s has %d packages %s, want one (%v): run \"make package\"", dist, len(found), pattern, err)
	}
	return found[0]
}

// kinds are the packages of each architecture.
var kinds = []struct {
	arch, deb, rpm string // as Go, Debian and Fedora call it
	machine        elf.Machine
}{
	{"amd64", "amd64", "x86_64", elf.EM_X86_64},
	{"arm64", "arm64", "aarch64", elf.EM_AARCH64},
}

// contents are the files of each package with their modes, but for documentation and completions.
func contents() map[string]map[string]string {
	const file, program, folder = "-rw-r--r--", "-rwxr-xr-x", "drwxr-xr-x"
	return map[string]map[string]string{
		"ashore": {
			"/etc/ashore/ashored.yaml":                file,
			"/etc/ashore/config":                      folder,
			"/usr/bin/ashored":                        program,
			"/usr/bin/ashorectl":                      program,
			"/usr/lib/systemd/system/ashored.service": file,
			"/usr/lib/sysusers.d/ashore.conf":         file,
			"/usr/lib/tmpfiles.d/ashore.conf":         file,
		},
		"ashore-agent": {
			"/etc/ashore":           folder,
			"/usr/bin/ashore-agent": program,
			"/usr/lib/systemd/system/ashore-agent.service":     file,
			"/usr/lib/systemd/system/ashore-agent.socket":      file,
			"/usr/lib/systemd/system/ashore-agent@.service":    file,
			"/usr/lib/systemd/system/ashore-envoy@.service":    file,
			"/usr/lib/systemd/system/ashore-envoys.target":     file,
			"/usr/lib/systemd/system/ashore-intercept.service": file,
			"/usr/lib/sysusers.d/ashore-agent.conf":            file,
			"/usr/lib/tmpfiles.d/ashore-agent.conf":            file,
			"/usr/share/polkit-1/rules.d/ashore-agent.rules":   file,
		},
		"ashore-envoy": {"/usr/lib/ashore/envoy": program},
	}
}

var listed = regexp.MustCompile(`(?m)^([-d][-rwx]{9})\s.*?\s\.?(/\S+)$`)

// files are the files of a listing, folders of every machine and documentation left out.
func files(listing, name string) map[string]string {
	out := map[string]string{}
	for _, m := range listed.FindAllStringSubmatch(listing, -1) {
		mode, path := m[1], strings.TrimSuffix(m[2], "/")
		if mode[0] == 'd' && path != "/etc/ashore/config" && (path != "/etc/ashore" || name == "ashore") ||
			regexp.MustCompile("/usr/share/doc/|completion|site-functions").MatchString(path) {
			continue
		}
		out[path] = mode
	}
	return out
}

// Debian's and Fedora's packages have the same files, for both architectures.
func TestContents(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		for name, want := range contents() {
			deb, rpm := built(t, name+"_*_"+kind.deb+".deb"), built(t, name+"-[0-9]*."+kind.rpm+".rpm")
			listings := map[string]string{deb: run(t, "dpkg-deb", "-c", deb), rpm: queryRPM(t, rpm, "-lv")}
			for path, listing := range listings {
				if got := files(listing, name); !maps.Equal(got, want) {
					t.Errorf("%s: %v\nwant %v", path, got, want)
				}
				if !strings.Contains(listing, "/usr/share/doc/"+name+"/copyright") {
					t.Errorf("%s has no copyright", path)
				}
			}
			if got := queryRPM(t, rpm, "--qf", "%{ARCH}"); got != kind.rpm {
				t.Errorf("%s is for %s", rpm, got)
			}
			if got := run(t, "dpkg-deb", "-f", deb, "Architecture"); strings.TrimSpace(got) != kind.deb {
				t.Errorf("%s is for %s", deb, got)
			}
		}
	}
}

// Programs are for the architecture of their package. Ours need no library of the machine.
func TestPrograms(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		dir := t.TempDir()
		for name, files := range contents() {
			run(t, "dpkg-deb", "-x", built(t, name+"_*_"+kind.deb+".deb"), dir)
			for path, mode := range files {
				if mode != "-rwxr-xr-x" {
					continue
				}
				program, err := elf.Open(filepath.Join(dir, path))
				if err != nil {
					t.Fatal(err)
				}
				libraries, err := program.ImportedLibraries()
				if program.Machine != kind.machine || err != nil || name != "ashore-envoy" && len(libraries) > 0 {
					t.Errorf("%s of %s: machine %v, libraries %v, %v", path, kind.deb, program.Machine, libraries, err)
				}
				if err := program.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// Settings that the operator changed are kept: dpkg asks, and rpm leaves the new file beside.
func TestSettingsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run(t, "dpkg-deb", "-e", built(t, "ashore_*_amd64.deb"), dir)
	got, err := os.ReadFile(filepath.Join(dir, "conffiles"))
	if want := "/etc/ashore/ashored.yaml\n"; err != nil || string(got) != want {
		t.Errorf("conffiles %q, %v, want %q", got, err, want)
	}
	config := queryRPM(t, built(t, "ashore-[0-9]*.x86_64.rpm"), "--qf", `[%{FILEFLAGS:fflags} %{FILENAMES}\n]`)
	if want := "cn /etc/ashore/ashored.yaml\n"; !strings.Contains(config, want) { // config, noreplace
		t.Errorf("rpm has\n%swant %q", config, want)
	}
}

// Both kinds of package depend on what the agent and its units use.
func TestDepends(t *testing.T) {
	t.Parallel()
	deb := run(t, "dpkg-deb", "-f", built(t, "ashore-agent_*_amd64.deb"), "Depends")
	rpm := queryRPM(t, built(t, "ashore-agent-[0-9]*.x86_64.rpm"), "-R")
	for _, name := range []string{"ashore-envoy", "systemd", "dbus", "polkit", "nftables", "iproute"} {
		if !strings.Contains(deb, name) || !strings.Contains(rpm, name) {
			t.Errorf("%s is missing: deb %s rpm %s", name, deb, rpm)
		}
	}
}

// Each script is one that sh accepts, and both kinds of package have the same ones.
func TestScripts(t *testing.T) {
	t.Parallel()
	ours, err := filepath.Glob("scripts/*.sh")
	if err != nil {
		t.Fatal(err)
	}
	debNames := map[string]string{
		"preinstall": "preinst", "postinstall": "postinst", "preremove": "prerm", "postremove": "postrm",
	}
	for _, path := range ours {
		run(t, "sh", "-n", path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, when, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".sh"), ".")
		dir := t.TempDir()
		run(t, "dpkg-deb", "-e", built(t, name+"_*_amd64.deb"), dir)
		if got, err := os.ReadFile(filepath.Join(dir, debNames[when])); err != nil || string(got) != string(text) {
			t.Errorf("%s is not %s of the deb: %v", path, debNames[when], err)
		}
		got := queryRPM(t, built(t, name+"-[0-9]*.x86_64.rpm"), "--scripts")
		if !strings.Contains(got, strings.TrimSpace(string(text))) {
			t.Errorf("%s is not in the rpm:\n%s", path, got)
		}
	}
	if len(ours) != 8 {
		t.Errorf("%d scripts, want 8", len(ours))
	}
}

// dpkg and rpm order the versions of tags and of what lies between them.
func TestVersions(t *testing.T) {
	t.Parallel()
	tags := []string{
		"v0.0.0-git20261122214038", "v0.1.0-rc.1", "v0.1.0-rc.1-3-g0123abc", "v0.1.0", "v0.1.0-9-g0123abc",
		"v0.1.0-10-gfff0000", "v0.1.1",
	}
	want := []string{
		"0.0.0~git20261122214038", "0.1.0~rc.1", "0.1.0~rc.1+3.g0123abc", "0.1.0", "0.1.0+9.g0123abc",
		"0.1.0+10.gfff0000", "0.1.1",
	}
	var got []string
	for _, tag := range tags {
		got = append(got, strings.TrimSpace(run(t, "./version.sh", tag)))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for i, newer := range want[1:] {
		run(t, "dpkg", "--compare-versions", want[i], "lt", newer)
		out := run(t, "rpm", "--eval", fmt.Sprintf("%%{lua:print(rpm.vercmp(%q, %q))}", want[i], newer))
		if strings.TrimSpace(out) != "-1" {
			t.Errorf("rpm: %s and %s compare %s", want[i], newer, out)
		}
	}
}
