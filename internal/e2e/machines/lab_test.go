package machines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The network of a lab. The test itself is at outside4 and outside6, where programs serve that do
// not belong to the mesh.
const (
	prefix4, prefix6   = "10.77.0.", "fd77::"
	outside4, outside6 = prefix4 + "1", prefix6 + "1"
)

// bootTime is how long a machine may take to boot, and a command may take.
const bootTime, commandTime = 90 * time.Second, 2 * time.Minute

// lab is a network namespace with a bridge, and machines on it.
type lab struct {
	t    *testing.T
	name string // of the network namespace
	dir  string // for the machines' files
	tree string // the Debian tree that all machines start from
}

// newLab makes a network. Its machines and it are gone when the test ends.
func newLab(t *testing.T, tree string) *lab {
	t.Helper()
	l := &lab{t: t, name: fmt.Sprintf("ashore-lab-%d", os.Getpid()), dir: t.TempDir(), tree: tree}
	l.host("ip", "netns", "add", l.name)
	t.Cleanup(func() { l.host("ip", "netns", "del", l.name) })
	for _, line := range []string{
		"link set lo up",
		"link add lab type bridge", // no spanning tree, and no snooping of multicast, which IPv6 lives by
		"address add " + outside4 + "/24 dev lab",
		"-6 address add " + outside6 + "/64 dev lab nodad",
		"link set lab up",
	} {
		l.host("ip", append([]string{"-n", l.name}, strings.Fields(line)...)...)
	}
	return l
}

// host runs a program on the host, and fails the test when it fails.
func (l *lab) host(program string, args ...string) {
	l.t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		l.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

// inside calls f on a thread that is in the lab's network: sockets that f opens belong to it.
func (l *lab) inside(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		file, err := os.Open("/run/netns/" + l.name)
		if err == nil {
			defer file.Close()
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// dial connects from outside the mesh.
func (l *lab) dial(network, address string) (c net.Conn, err error) {
	err = l.inside(func() error {
		c, err = net.DialTimeout(network, address, 3*time.Second)
		return err
	})
	return c, err
}

// get asks for a URL from outside the mesh.
func (l *lab) get(url string) (status int, body string, err error) {
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (net.Conn,
			error) {
			return l.dial(network, address)
		}}}
	r, err := c.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r.StatusCode, string(b), err
}

// serveHTTP answers every request outside the mesh with a text.
func (l *lab) serveHTTP(address, text string) {
	l.t.Helper()
	var listener net.Listener
	if err := l.inside(func() (err error) { listener, err = net.Listen("tcp", address); return err }); err != nil {
		l.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprintln(w, text)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it ends with the test
	}()
	l.t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
}

// machine is one machine of a lab.
type machine struct {
	lab       *lab
	name      string
	ip4, ip6  string
	root      string // its file system, as the host sees it
	cgroup    string // of its processes: systemd wants one of its own
	init      int    // process of its systemd, as the host sees it; zero: it is off
	container *exec.Cmd
	ended     chan struct{} // closed when the container has ended
	console   lockedBuffer
}

// newMachine makes a machine with the last part of its addresses, and switches it on; booted waits
// for it.
func (l *lab) newMachine(name string, number int) *machine {
	l.t.Helper()
	m := &machine{lab: l, name: name, ip4: prefix4 + strconv.Itoa(number), ip6: prefix6 + strconv.Itoa(number),
		root: filepath.Join(l.dir, name, "root")}
	upper, work := filepath.Join(l.dir, name, "upper"), filepath.Join(l.dir, name, "work")
	for _, d := range []string{m.root, upper, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			l.t.Fatal(err)
		}
	}
	l.host("mount", "-t", "overlay", "overlay", "-o", "lowerdir="+l.tree+",upperdir="+upper+",workdir="+work, m.root)
	l.t.Cleanup(func() { l.host("umount", m.root) })
	m.cgroup = filepath.Join(cgroups(), l.name+"-"+name)
	if err := os.Mkdir(m.cgroup, 0o755); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { removeCgroup(l.t, m.cgroup) })
	m.write("/etc/hostname", name+"\n")
	m.write("/etc/hosts", "127.0.0.1 localhost "+name+"\n::1 localhost\n"+prefix4+"10 ashore.example.com\n"+prefix6+"10 ashore.example.com\n")
	m.write("/etc/resolv.conf", "nameserver "+outside4+"\n")
	m.write("/etc/systemd/network/10-host0.network",
		fmt.Sprintf("[Match]\nName=host0\n[Network]\nAddress=%s/24\nAddress=%s/64\nGateway=%s\nGateway=%s\nIPv6AcceptRA=no\nLinkLocalAddressing=ipv6\n", m.ip4, m.ip6, outside4, outside6))
	l.t.Cleanup(m.powerOff)
	m.boot()
	return m
}

// cgroups is where the control groups of version 2 are.
func cgroups() string {
	const both = "/sys/fs/cgroup/unified" // in addition to those of version 1
	if _, err := os.Stat(both); err == nil {
		return both
	}
	return "/sys/fs/cgroup"
}

// removeCgroup removes a control group and those below it.
func removeCgroup(t *testing.T, path string) {
	var all []string
	err := filepath.WalkDir(path, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	for _, dir := range slices.Backward(all) {
		err = errors.Join(err, os.Remove(dir))
	}
	if err != nil {
		t.Error(err)
	}
}

// write writes a file of the machine.
func (m *machine) write(path, text string) {
	m.lab.t.Helper()
	path = filepath.Join(m.root, path)
	_ = os.Remove(path) // it may be a link
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		m.lab.t.Fatal(err)
	}
}

// copy copies files of the host into a folder of the machine.
func (m *machine) copy(folder string, files ...string) {
	m.lab.t.Helper()
	to := filepath.Join(m.root, folder)
	if err := os.MkdirAll(to, 0o755); err != nil {
		m.lab.t.Fatal(err)
	}
	m.lab.host("cp", append(slices.Clone(files), to)...)
}

// booted waits until the machine has booted.
func (m *machine) booted() {
	t := m.lab.t
	t.Helper()
	deadline := time.Now().Add(bootTime)
	for {
		out, err := m.try("systemctl is-system-running --wait || systemctl --failed --no-legend; ip -4 -o address show dev host0")
		if err == nil && strings.Contains(out, m.ip4) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has not booted: %v\n%s\n%s", m.name, err, out, m.console.String())
		}
		<-time.After(100 * time.Millisecond)
	}
}

// boot switches the machine on, and waits until commands can be run.
func (m *machine) boot() {
	t := m.lab.t
	t.Helper()
	m.container = exec.Command("nsenter", "--net=/run/netns/"+m.lab.name, "systemd-nspawn", "--quiet",
		"--directory="+m.root, "--boot", "--network-bridge=lab",
		"--machine="+m.lab.name+"-"+m.name, "--hostname="+m.name, "--register=no", "--keep-unit", "--resolv-conf=off", "--timezone=off", "--kill-signal=SIGRTMIN+4")
	m.container.Env = append(os.Environ(), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1")
	m.container.Stdout, m.container.Stderr = &m.console, &m.console
	group, err := os.Open(m.cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	m.container.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true, UseCgroupFD: true,
		CgroupFD: int(group.Fd())}
	m.ended = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the kernel sends the signal above when this thread ends
		defer close(m.ended)
		err := m.container.Start()
		started <- err
		if err == nil {
			_ = m.container.Wait() // a reboot ends it with an error
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", m.name, err)
	}
	for deadline := time.Now().Add(bootTime); ; <-time.After(20 * time.Millisecond) {
		if m.init = child(m.container.Process.Pid); m.init != 0 {
			if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", m.init)); err == nil &&
				strings.TrimSpace(string(comm)) == "systemd" {
				return
			}
		}
		select {
		case <-m.ended:
			t.Fatalf("%s has ended:\n%s", m.name, m.console.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not start:\n%s", m.name, m.console.String())
		}
	}
}

// child is the first child of a process; zero: it has none.
func child(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	n, _ := strconv.Atoi(first) // zero for none
	return n
}

// powerOff shuts the machine down, as "systemctl poweroff" does.
func (m *machine) powerOff() {
	if m.init == 0 {
		return
	}
	_, err := m.try("systemctl poweroff")
	select {
	case <-m.ended:
	case <-time.After(bootTime):
		m.lab.t.Errorf("%s does not shut down: %v\n%s", m.name, err, m.console.String())
		_ = syscall.Kill(m.init, syscall.SIGKILL)
		<-m.ended
	}
	m.init = 0
}

// command is a script on the machine, run as root.
func (m *machine) command(script string) *exec.Cmd {
	return m.commandContext(context.Background(), script)
}

func (m *machine) commandContext(ctx context.Context, script string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(m.init), "--mount", "--uts", "--ipc", "--net",
		"--pid",
		"env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "bash", "-euo", "pipefail", "-c", "cd /root; "+script)
}

// try runs a script on the machine, as root, and returns all that it prints.
func (m *machine) try(script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	out, err := m.commandContext(ctx, script).CombinedOutput()
	return string(out), err
}

// run runs a script on the machine, as root, and fails the test when it fails.
func (m *machine) run(script string) string {
	m.lab.t.Helper()
	out, err := m.try(script)
	if err != nil {
		m.lab.t.Fatalf("%s: %s: %v\n%s", m.name, script, err, out)
	}
	return out
}

// eventually runs a script until it succeeds.
func (m *machine) eventually(within time.Duration, script string) string {
	m.lab.t.Helper()
	for deadline := time.Now().Add(within); ; <-time.After(100 * time.Millisecond) {
		out, err := m.try(script)
		if err == nil {
			return out
		}
		if time.Now().After(deadline) {
			m.lab.t.Fatalf("%s: %s: %v\n%s", m.name, script, err, out)
		}
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
