package dns

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestResolvConf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what, main, resolved string
		set                  []string
		want                 []string
		problem              string
	}{
		{what: "servers", main: "nameserver 10.0.0.2\nnameserver fe80::1%eth0\n", want: []string{"10.0.0.2:53",
			"[fe80::1%eth0]:53"}},
		{what: "systemd-resolved", main: "nameserver 127.0.0.53\noptions edns0\n", resolved: "nameserver 10.0.0.3\n",
			want: []string{"10.0.0.3:53"}},
		{what: "systemd-resolved and another", main: "nameserver 127.0.0.53\nnameserver 10.0.0.2\n",
			resolved: "nameserver 10.0.0.3\n",
			want:     []string{"127.0.0.53:53", "10.0.0.2:53"}},
		{what: "systemd-resolved without its file", main: "nameserver 127.0.0.53\n",
			problem: "names systemd-resolved, whose servers cannot be read"},
		{what: "another local resolver", main: "nameserver 127.0.0.1\n", resolved: "nameserver 10.0.0.3\n",
			want: []string{"127.0.0.1:53"}},
		{what: "this agent", main: "nameserver 127.0.0.5\nnameserver 10.0.0.2\n", want: []string{"10.0.0.2:53"}},
		{what: "this agent alone", main: "nameserver 127.0.0.5\n", problem: "names no DNS server beside this machine's " +
			"own; set dns.servers"},
		{what: "the settings", main: "nameserver 127.0.0.1\n", set: []string{"10.0.0.4:53"}, want: []string{"10.0.0.4:53"}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			c := conf(t, tt.main)
			c.servers, c.own = tt.set, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.5:53")}
			if tt.resolved != "" {
				write(t, c.resolved, tt.resolved)
			}
			got, problem := c.get()
			if !slices.Equal(got, tt.want) || !strings.Contains(problem, tt.problem) ||
				(problem == "") != (tt.problem == "") {
				t.Errorf("got %v, %q, want %v, %q", got, problem, tt.want, tt.problem)
			}
		})
	}
}

// A file that changes counts, and one that breaks changes nothing.
func TestResolvConfChanges(t *testing.T) {
	t.Parallel()
	c := conf(t, "nameserver 10.0.0.2\n")
	get := func(what, server, problem string) {
		t.Helper()
		c.read = time.Time{} // as if it were old
		got, text := c.get()
		if !slices.Equal(got, []string{server}) || !strings.Contains(text, problem) {
			t.Errorf("%s: got %v, %q", what, got, text)
		}
	}
	get("first", "10.0.0.2:53", "")
	write(t, c.path, "nameserver 10.0.0.3\n")
	get("a change", "10.0.0.3:53", "")
	if err := os.Remove(c.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(c.path+".gone", c.path); err != nil {
		t.Fatal(err)
	}
	get("a broken link", "10.0.0.3:53", "no such file or directory")
	write(t, c.path+".gone", "nameserver 10.0.0.4\n")
	get("mended", "10.0.0.4:53", "")
}

// conf reads a file with that text.
func conf(t *testing.T, text string) *resolvConf {
	t.Helper()
	c := &resolvConf{path: filepath.Join(t.TempDir(), "resolv.conf")}
	c.resolved = c.path + ".resolved"
	write(t, c.path, text)
	return c
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReadTable(t *testing.T) {
	t.Parallel()
	got, err := ReadTable(encode(map[string][]string{"A.test": {"10.0.0.1"}, "not a name..": {"10.0.0.2"},
		"b.test.": {"::ffff:10.0.0.3"}}))
	if err != nil || got.Len() != 2 || len(got.hosts["a.test."].v4) != 1 || len(got.hosts["b.test."].v4) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range [][]byte{{0x0a}, {0x0a, 2, 0x0a, 9}, []byte("not a table")} {
		if _, err := ReadTable(bad); err == nil {
			t.Errorf("%x is read as a table", bad)
		}
	}
}
