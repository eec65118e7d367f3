package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// Mesh is one ashored and the addresses around it.
type Mesh struct {
	T testing.TB
	// Files is the folder of configuration, State that of ashored's state.
	Files, State string
	// Ashored is the process that runs now.
	Ashored *Process
	// Admin asks it.
	Admin *admin.Client

	subnet string // "127.70.3."
	next   atomic.Int32
	ns     *Namespace

	secure   bool     // else in development
	settings string   // what a test adds to the settings file
	sources  []string // before its files
}

// subnets numbers the loopback networks of this process.
var subnets atomic.Int32

// Option changes how a mesh starts.
type Option func(*Mesh)

// StateOn prepares the state folder before ashored starts.
func StateOn(prepare func(dir string)) Option { return func(m *Mesh) { prepare(m.State) } }

// On runs ashored on a network that FreeSubnet found, so that a test knows its addresses before.
func On(subnet string) Option { return func(m *Mesh) { m.subnet = subnet } }

// Further are more settings of a mesh in development: "mcp: {readers: [anybody]}".
func Further(settings string) Option { return func(m *Mesh) { m.settings = settings } }

// In runs ashored in a network namespace, at its loopback address.
func In(ns *Namespace) Option { return func(m *Mesh) { m.ns, m.subnet = ns, "127.0.0." } }

// At runs ashored in a hub, at its address on the bridge.
func At(hub *Namespace) Option { return func(m *Mesh) { m.ns, m.subnet = hub, HubSubnet } }

// New starts ashored on a loopback network of its own with the files given, by name.
func New(t testing.TB, files map[string]string, options ...Option) *Mesh {
	t.Helper()
	dir := t.TempDir()
	m := &Mesh{T: t, Files: filepath.Join(dir, "config"), State: filepath.Join(dir, "state"), subnet: FreeSubnet(t)}
	m.next.Store(1)
	for _, d := range []string{m.Files, m.State} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		m.Write(name, text)
	}
	for _, o := range options {
		o(m)
	}
	m.configure()
	if m.secure {
		m.initialize()
	}
	m.Start()
	return m
}

// initialize creates the control plane, unless there is one already.
func (m *Mesh) initialize() {
	m.T.Helper()
	out, code, err := toEnd(append(m.ns.prefix(), Program("ashored"), "init", "--config", m.SettingsFile()))
	if err != nil || code != 0 {
		m.T.Fatalf("ashored init: exit code %d, %v\n%s", code, err, out)
	}
}

// FreeSubnet finds an unused loopback /24, "127.70.3.". Until the test ends, a listener there keeps
// other test processes from taking it.
func FreeSubnet(t testing.TB) string {
	for range 200 {
		n := int(subnets.Add(1)) + os.Getpid()*7
		subnet := fmt.Sprintf("127.%d.%d.", 64+n/250%128, n%250)
		l, err := net.Listen("tcp", subnet+"254:15010")
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = l.Close() })
		return subnet
	}
	t.Fatal("no free loopback network")
	return ""
}

// XDS is the address of ashored's discovery service.
func (m *Mesh) XDS() string { return m.subnet + "1:15010" }

// Socket is ashored's admin socket.
func (m *Mesh) Socket() string { return filepath.Join(m.State, "admin.sock") }

// Metrics is the address of ashored's metrics and health.
func (m *Mesh) Metrics() string { return m.subnet + "1:15014" }

// IP returns an unused loopback address of the mesh.
func (m *Mesh) IP() string { return fmt.Sprintf("%s%d", m.subnet, m.next.Add(1)) }

// Start runs ashored, again after it was killed or stopped, and waits until it serves.
func (m *Mesh) Start() {
	m.T.Helper()
	argv := append(m.ns.prefix(), Program("ashored"), "--config", m.SettingsFile())
	if !m.secure {
		argv = append(argv, "--dev")
	}
	m.Ashored = start(m.T, "ashored", 0, argv...)
	m.Admin = admin.NewClient(m.Socket())
	Eventually(m.T, "ashored answers", func() error {
		if !m.Ashored.Running() {
			return errors.New("it has ended:\n" + m.Ashored.Log())
		}
		_, err := admin.Send(context.Background(), m.Admin, admin.CallStatus, admin.None{})
		return err
	})
}

// Write puts a file in place by rename, as deployment tools do. Its name may contain folders.
func (m *Mesh) Write(name, text string) {
	m.T.Helper()
	path := filepath.Join(m.Files, name)
	dir := filepath.Dir(path)
	tmp := filepath.Join(dir, "."+filepath.Base(path)+".tmp")
	err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(tmp, []byte(text), 0o600), os.Rename(tmp, path))
	if err != nil {
		m.T.Fatal(err)
	}
}

// Remove deletes a file.
func (m *Mesh) Remove(name string) {
	m.T.Helper()
	if err := os.Remove(filepath.Join(m.Files, name)); err != nil {
		m.T.Fatal(err)
	}
}

// eventuallyTimeout is the timeout of Eventually; CI machines are slow and shared.
const eventuallyTimeout = 60 * time.Second

// Eventually waits until f returns nil.
func Eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(eventuallyTimeout)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, eventuallyTimeout, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
