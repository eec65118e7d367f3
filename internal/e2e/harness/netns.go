package harness

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Namespace is a network of its own, as a machine has. Needs root.
type Namespace struct {
	t    testing.TB
	name string
	// IP is its address on the link to its peer, or on the bridge of its hub.
	IP string

	attached atomic.Int32 // of a hub: how many namespaces were attached
	delete   func()
}

var namespaces atomic.Int32

// newNamespace makes a network namespace that exists until Delete is called or the test ends.
func newNamespace(t testing.TB) *Namespace {
	t.Helper()
	needs(t, "ip", "iproute2")
	ns := &Namespace{t: t, name: fmt.Sprintf("ashore-%d-%d", os.Getpid(), namespaces.Add(1))}
	command(t, "ip", "netns", "add", ns.name)
	ns.delete = sync.OnceFunc(func() { command(t, "ip", "netns", "del", ns.name) })
	t.Cleanup(ns.delete)
	ns.Command("ip", "link", "set", "lo", "up")
	return ns
}

// Linked makes two network namespaces with a link between them: 10.99.0.1 and 10.99.0.2. Everything
// else is routed to the peer.
func Linked(t testing.TB) (a, b *Namespace) {
	t.Helper()
	a, b = newNamespace(t), newNamespace(t)
	a.IP, b.IP = "10.99.0.1", "10.99.0.2"
	a.Command("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b.name)
	for _, ns := range []*Namespace{a, b} {
		ns.Command("ip", "address", "add", ns.IP+"/24", "dev", "eth0")
		ns.Command("ip", "link", "set", "eth0", "up")
	}
	a.Command("ip", "route", "add", "default", "via", b.IP)
	b.Command("ip", "route", "add", "default", "via", a.IP)
	return a, b
}

// HubSubnet is where a hub and the namespaces attached to it have their addresses.
const HubSubnet = "10.98.0."

// Hub makes a network namespace with a bridge, at 10.98.0.1.
func Hub(t testing.TB) *Namespace {
	t.Helper()
	hub := newNamespace(t)
	hub.IP = HubSubnet + "1"
	hub.Command("ip", "link", "add", "hub", "type", "bridge")
	hub.Command("ip", "address", "add", hub.IP+"/24", "dev", "hub")
	hub.Command("ip", "link", "set", "hub", "up")
	return hub
}

// Attach makes a network namespace on the bridge of a hub. Everything else is routed to the hub.
func (ns *Namespace) Attach() *Namespace {
	ns.t.Helper()
	number := ns.attached.Add(1) + 1
	other := newNamespace(ns.t)
	other.IP = fmt.Sprint(HubSubnet, number)
	link := fmt.Sprint("veth", number)
	ns.Command("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", other.name)
	ns.Command("ip", "link", "set", link, "master", "hub", "up")
	other.Command("ip", "address", "add", other.IP+"/24", "dev", "eth0")
	other.Command("ip", "link", "set", "eth0", "up")
	other.Command("ip", "route", "add", "default", "via", ns.IP)
	return other
}

// Delete deletes the namespace before the test ends. Programs in it have to end by themselves.
func (ns *Namespace) Delete() { ns.delete() }

// Command runs a program in the namespace and fails the test when it fails.
func (ns *Namespace) Command(argv ...string) {
	ns.t.Helper()
	command(ns.t, append(ns.prefix(), argv...)...)
}

// NFT loads nftables rules in the namespace.
func (ns *Namespace) NFT(rules string) {
	ns.t.Helper()
	needs(ns.t, "nft", "nftables")
	cmd := ns.Program("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		ns.t.Fatalf("nft in %s: %v\n%s", ns.name, err, out)
	}
}

// Program is one that will run in the namespace.
func (ns *Namespace) Program(argv ...string) *exec.Cmd {
	argv = append(ns.prefix(), argv...)
	return exec.Command(argv[0], argv[1:]...)
}

// Move moves a network interface of the namespace to another.
func (ns *Namespace) Move(link string, to *Namespace) {
	ns.t.Helper()
	ns.Command("ip", "link", "set", link, "netns", to.name)
}

func (ns *Namespace) prefix() []string {
	if ns == nil {
		return nil
	}
	return []string{"ip", "netns", "exec", ns.name}
}

// Do calls f on a thread that is in the namespace: the sockets that f opens belong to it.
func (ns *Namespace) Do(f func() error) error {
	if ns == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- func() error {
			file, err := os.Open("/run/netns/" + ns.name)
			if err != nil {
				return err
			}
			defer file.Close()
			if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter %s: %w", ns.name, err)
			}
			return f()
		}()
	}()
	return <-done
}

// Dial connects from within the namespace.
func (ns *Namespace) Dial(_ context.Context, network, address string) (c net.Conn, err error) {
	err = ns.Do(func() error {
		c, err = net.Dial(network, address)
		return err
	})
	return c, err
}

// Listen listens within the namespace.
func (ns *Namespace) Listen(t testing.TB, address string) net.Listener {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) { l, err = net.Listen("tcp", address); return err }); err != nil {
		t.Fatalf("listen on %s: %v", address, err)
	}
	return l
}

// Forward makes address of the namespace reach the same address of another.
func (ns *Namespace) Forward(address string, to *Namespace) {
	ns.t.Helper()
	serveTCP(ns.t, ns.Listen(ns.t, address), func(in net.Conn) {
		out, err := to.Dial(context.Background(), "tcp", address)
		if err != nil {
			return
		}
		var back sync.WaitGroup
		back.Go(func() { io.Copy(in, out); in.Close() })
		io.Copy(out, in)
		out.Close()
		back.Wait()
	})
}

// needs fails the test when a program is missing.
func needs(t testing.TB, program, pkg string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("%v: run `make net-tools` as root, or install the package %s", err, pkg)
	}
}

func command(t testing.TB, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}
