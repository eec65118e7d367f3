package testconsul

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testchild"
	"github.com/ashore-mesh/ashore/internal/testport"
)

// Path is the Consul to test with: $CONSUL, or the one that "make tools" built. A test without one
// fails.
func Path(t testing.TB) string {
	t.Helper()
	return testchild.Tool(t, "CONSUL", "consul")
}

// Agent is a server of a datacenter of its own on 127.0.0.1, at ports that it keeps when it is
// started again.
type Agent struct {
	// Address is that of its HTTP interface, "127.0.0.1:20123"; Secure that of HTTPS.
	Address, Secure string
	// WAN is where agents of other datacenters find it (retry_join_wan), LAN where those of its own
	// do (retry_join).
	WAN, LAN string
	// CAFile has the authority of its certificate, which CertFile and KeyFile are.
	CAFile, CertFile, KeyFile string

	t      testing.TB
	dir    string
	config map[string]any

	kill   func()
	signal func(os.Signal) error
}

// VerifyClients among the settings of an agent has it want certificates of its clients over HTTPS.
const VerifyClients = "verify_clients"

// New prepares an agent with these settings of Consul's configuration besides those that every one
// has; nil: no others.
func New(t testing.TB, more map[string]any) *Agent {
	t.Helper()
	dir := t.TempDir()
	a := &Agent{t: t, dir: dir, CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"),
		KeyFile: filepath.Join(dir, "key.pem")}
	writePair(t, dir)
	_, verify := more[VerifyClients]
	port := testport.Free(t)
	secure, wan, lan := testport.Free(t), testport.Free(t), testport.Free(t)
	a.WAN, a.LAN = fmt.Sprintf("127.0.0.2:%d", wan), fmt.Sprintf("127.0.0.2:%d", lan)
	a.Address, a.Secure = fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("127.0.0.1:%d", secure)
	a.config = map[string]any{
		"server": true, "bootstrap_expect": 1, "data_dir": filepath.Join(dir, "data"), "client_addr": "127.0.0.1",
		"bind_addr": "127.0.0.2", // on 127.0.0.1 the UDP port stands for the claim of testport
		"ports": map[string]any{"http": port, "https": secure, "server": testport.Free(t), "serf_lan": lan,
			"serf_wan": wan, "dns": -1, "grpc": -1, "grpc_tls": -1},
		"tls": map[string]any{"https": map[string]any{"cert_file": a.CertFile, "key_file": a.KeyFile,
			"ca_file": a.CAFile, "verify_incoming": verify}},
		"performance": map[string]any{"raft_multiplier": 1}, "disable_update_check": true, "log_level": "warn", "leave_on_terminate": false,
		"raft_snapshot_threshold": 8192,
	}
	maps.Copy(a.config, more)
	delete(a.config, VerifyClients)
	return a
}

// Start runs a new agent until t ends.
func Start(t testing.TB, more map[string]any) *Agent {
	t.Helper()
	a := New(t, more)
	a.Start()
	return a
}

// Start runs it, until Kill or the end of the test, and returns when it has a leader.
func (a *Agent) Start() {
	a.t.Helper()
	raw, err := json.Marshal(a.config)
	if err != nil {
		a.t.Fatal(err)
	}
	file := filepath.Join(a.dir, "agent.json")
	if err := os.WriteFile(file, raw, fs.FileMode(0o600)); err != nil {
		a.t.Fatal(err)
	}
	cmd := exec.Command(Path(a.t), "agent", "-config-file", file)
	a.kill = testchild.Run(a.t, cmd)
	a.signal = cmd.Process.Signal
	a.ready()
}

// Kill ends it as kill -9 does.
func (a *Agent) Kill() { a.kill() }

// Forget makes a killed agent start with an empty data folder the next time, as after the loss of a
// disk.
func (a *Agent) Forget() {
	a.t.Helper()
	if err := os.RemoveAll(filepath.Join(a.dir, "data")); err != nil {
		a.t.Fatal(err)
	}
}

// Freeze stops it without ending it: its connections stay open, and it says nothing more, until
// Thaw.
func (a *Agent) Freeze() { a.send(syscall.SIGSTOP) }

// Thaw lets it continue.
func (a *Agent) Thaw() {
	a.t.Helper()
	a.send(syscall.SIGCONT)
	a.ready()
}

func (a *Agent) send(s os.Signal) {
	a.t.Helper()
	if err := a.signal(s); err != nil {
		a.t.Fatalf("%v to consul: %v", s, err)
	}
}

// ready waits until it has a leader that has read all that was written before: one that counts as
// leader and has not yet denies what it knew.
func (a *Agent) ready() {
	a.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get("http://" + a.Address + "/v1/catalog/nodes?consistent")
		if err == nil {
			err = resp.Body.Close()
			if err == nil && resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(end) {
			a.kill()
			a.t.Fatalf("consul has no leader: %v", err)
		}
	}
}
