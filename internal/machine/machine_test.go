package machine

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Whoever listens at a port is found, also at another address that conflicts.
func TestPortOwner(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.70.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	port := tcp.Addr().(*net.TCPAddr).AddrPort().Port()
	udp, err := net.ListenPacket("udp", "127.0.70.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	udpPort := udp.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	for name, tc := range map[string]struct {
		address string
		port    uint16
		udp     bool
		taken   bool
	}{
		"the address":       {"127.0.70.1", port, false, true},
		"all addresses":     {"0.0.0.0", port, false, true},
		"all IPv6":          {"::", port, false, true},
		"another address":   {"127.0.70.2", port, false, false},
		"another transport": {"127.0.70.1", udpPort, false, false},
		"UDP":               {"127.0.70.1", udpPort, true, true},
	} {
		owner, err := PortOwner(Socket{netip.AddrPortFrom(netip.MustParseAddr(tc.address), tc.port), tc.udp})
		switch {
		case err != nil || (owner != nil) != tc.taken:
			t.Errorf("%s: %v, %v; want one: %v", name, owner, err, tc.taken)
		case tc.taken && (owner.PID != os.Getpid() || !strings.HasPrefix(owner.String(), "machine.test (process ")):
			t.Errorf("%s: %v has it, want process %d", name, owner, os.Getpid())
		}
	}
}

// script is an executable file.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// It runs alone: a fork of another test may keep a script open for writing, which then cannot be
// run.
func TestCheckEnvoy(t *testing.T) {
	for name, tc := range map[string]struct{ path, want string }{
		"starts":      {script(t, "#!/bin/sh\necho 'envoy  version: 9e55/1.40.0/Clean/RELEASE/BoringSSL'\n"), ""},
		"too old":     {script(t, "#!/bin/sh\necho 'envoy  version: 9e55/1.35.9/Clean/RELEASE/BoringSSL'\n"), "is version 1.35.9, supported are 1.39 to 1.40"},
		"too new":     {script(t, "#!/bin/sh\necho 'envoy  version: 9e55/1.41.0-dev/Clean/RELEASE/BoringSSL'\n"), "is version 1.41.0-dev, supported are 1.39 to 1.40"},
		"not Envoy":   {script(t, "#!/bin/sh\necho 1.40.0\n"), "is not Envoy: its --version says \"1.40.0\""},
		"missing":     {filepath.Join(t.TempDir(), "envoy"), "install the package ashore-envoy"},
		"no loader":   {script(t, "#!/lib64/none\n"), "needs glibc for this architecture"},
		"old glibc":   {script(t, "#!/bin/sh\necho \"envoy: version \\`GLIBC_2.99' not found\" >&2; exit 1\n"), "needs a newer glibc than this machine has: envoy: version `GLIBC_2.99'"},
		"other error": {script(t, "#!/bin/sh\necho broken; exit 3\n"), "does not start: install the package ashore-envoy for this machine: exit status 3 broken"},
	} {
		err := CheckEnvoy(t.Context(), tc.path)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestCheckResolver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link, file := filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := os.Symlink("../run/stub.conf", link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{link: "is a link to ../run/stub.conf, which does not exist", file: "",
		filepath.Join(dir, "none"): ""} {
		if err := CheckResolver(path); (err == nil) != (want == "") || err != nil &&
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestShow(t *testing.T) {
	s := Systemctl(script(t, `#!/bin/sh
case "$*" in
*missing*) echo "no bus" >&2; exit 1 ;;
esac
printf 'Result=exit-code\nId=a.service\nActiveState=failed\nSubState=failed\nUnitFileState=enabled\n\n'
printf 'Result=success\nId=b@0.service\nActiveState=active\nSubState=running\nUnitFileState=\n'
`))
	got, err := s.Show(t.Context(), "a.service", "b@*.service")
	var texts []string
	for _, u := range got {
		texts = append(texts, u.String())
	}
	want := []string{"a.service has failed (exit-code), enabled", "b@0.service is active (running)"}
	if err != nil || !slices.Equal(texts, want) {
		t.Errorf("got %q, %v; want %q", texts, err, want)
	}
	if err := s.Run(t.Context(),
		"missing"); err == nil || !strings.Contains(err.Error(), "systemctl missing: exit status 1: no bus") {
		t.Errorf("got %v", err)
	}
}
