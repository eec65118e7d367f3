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

	"github.com/ashore-mesh/ashore/internal/testcert"
	"github.com/ashore-mesh/ashore/internal/testchild"
	"github.com/ashore-mesh/ashore/internal/testport"
)

// Path returns the program of Consul: $CONSUL, or the one that "make tools" built. If there is
// none, the test fails.
func Path(t testing.TB) string {
	t.Helper()
	return testchild.Tool(t, "CONSUL", "consul")
}

// Agent is a Consul server with its own datacenter on this machine. It keeps its ports when it is
// restarted.
type Agent struct {
	// Address is the address of the HTTP API, such as "127.0.0.1:20123". Secure is that of HTTPS.
	Address, Secure string
	// WAN is its address for agents of other datacenters (retry_join_wan), and LAN for agents of
	// its own datacenter (retry_join).
	WAN, LAN string
	// CertFile and KeyFile are its certificate and key. CAFile verifies the certificate.
	CAFile, CertFile, KeyFile string

	t      testing.TB
	dir    string
	config map[string]any

	kill   func()
	signal func(os.Signal) error
}

// VerifyClients is a key for New. It makes the agent require client certificates over HTTPS.
const VerifyClients = "verify_clients"

// New returns an agent that does not run yet. more is added to the agent's configuration and may
// replace the defaults; it may be nil.
func New(t testing.TB, more map[string]any) *Agent {
	t.Helper()
	dir := t.TempDir()
	a := &Agent{t: t, dir: dir}
	a.CertFile, a.KeyFile = testcert.Write(t, dir)
	a.CAFile = a.CertFile
	_, verify := more[VerifyClients]
	port := testport.Free(t)
	secure, wan, lan := testport.Free(t), testport.Free(t), testport.Free(t)
	a.WAN, a.LAN = fmt.Sprintf("127.0.0.2:%d", wan), fmt.Sprintf("127.0.0.2:%d", lan)
	a.Address, a.Secure = fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("127.0.0.1:%d", secure)
	a.config = map[string]any{
		"server": true, "bootstrap_expect": 1, "data_dir": filepath.Join(dir, "data"), "client_addr": "127.0.0.1",
		"bind_addr": "127.0.0.2", // testport reserves a port by binding its UDP port on 127.0.0.1
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

// Start returns a new agent that runs until t ends.
func Start(t testing.TB, more map[string]any) *Agent {
	t.Helper()
	a := New(t, more)
	a.Start()
	return a
}

// Start starts the agent, and returns when it has a leader. The agent runs until Kill or the end of
// the test.
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

// Kill kills the agent with SIGKILL.
func (a *Agent) Kill() { a.kill() }

// Forget deletes the data of a killed agent, as after the loss of a disk.
func (a *Agent) Forget() {
	a.t.Helper()
	if err := os.RemoveAll(filepath.Join(a.dir, "data")); err != nil {
		a.t.Fatal(err)
	}
}

// Freeze suspends the agent (SIGSTOP) until Thaw. Its connections stay open, and it does not
// respond.
func (a *Agent) Freeze() { a.send(syscall.SIGSTOP) }

// Thaw resumes the agent and returns when it has a leader.
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

// ready waits until the agent has a leader that has applied all earlier writes. A new leader that
// has not applied them yet answers that existing entries do not exist.
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
