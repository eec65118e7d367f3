package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/server"
	"github.com/ashore-mesh/ashore/internal/testchild"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/internal/testport"
)

// TestMain lets this binary stand for ashored: as the child that checks a store, and as the program
// that a test kills.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == server.CheckStoreCommand || os.Args[1] == "--dev") {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// run is the program, whose log gRPC's library does not write to: that has one for the whole
// process.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	return execute(ctx, newRoot(func(hclog.Logger) {}), args, out, errOut)
}

const entryFile = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.1}]
`

// site is an ashored in a folder of its own.
type site struct {
	dir, xds, metrics, socket string
	more                      []string // arguments
	argv                      []string // all of them, when not nil
	log                       *testlog.Text
}

// newSite has a folder of configuration with one service, and addresses that are free.
func newSite(t *testing.T) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "ashored") // short: a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s := &site{dir: dir, xds: testport.Address(t), metrics: testport.Address(t),
		socket: filepath.Join(dir, "state", "admin.sock"), log: &testlog.Text{}}
	if err := os.Mkdir(filepath.Join(dir, "files"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.put(t, "web.yaml", fmt.Sprintf(entryFile, "web"))
	return s
}

// put renames a file of configuration into place.
func (s *site) put(t *testing.T, name, text string) {
	t.Helper()
	tmp, path := filepath.Join(s.dir, name), filepath.Join(s.dir, "files", name)
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatal(err)
	}
}

func (s *site) args() []string {
	if s.argv != nil {
		return s.argv
	}
	return slices.Concat([]string{"--dev", "--files", filepath.Join(s.dir, "files")}, s.set(), s.more)
}

// set are the settings that keep it apart from others.
func (s *site) set() []string {
	return []string{"--set", "state=" + filepath.Join(s.dir, "state"), "--set", "xds.plaintextAddress=" + s.xds,
		"--set", "metrics.address=" + s.metrics}
}

// start is launch, and waits until proxies are served.
func (s *site) start(t *testing.T) (stop func() int) {
	t.Helper()
	stop = s.launch(t)
	s.until(t, "ready", func() bool { return s.status("/ready") == http.StatusOK })
	return stop
}

// launch runs ashored in this process and returns what ends it and gives its exit code.
func (s *site) launch(t *testing.T) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int, 1)
	go func() { done <- run(ctx, s.args(), s.log, s.log) }()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("ashored said:\n%s", s.log)
		}
	})
	return stop
}

func (s *site) status(path string) int {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + s.metrics + path)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// until waits for something that is certain to come; the bound only ends a test that fails.
func (s *site) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not %s after 20s; ashored said:\n%s", what, s.log)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// The whole program: files become resources of a connected proxy and answers to operators, a broken
// file changes nothing and shows, and the end leaves nothing behind.
func TestProgram(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	stop := s.start(t)
	client := admin.NewClient(s.socket)
	ctx := t.Context()

	if st, err := admin.Send(ctx, client, admin.CallStatus, admin.None{}); err != nil || !st.Ready || st.Config.Services != 1 || st.Config.Errors != 0 {
		t.Fatalf("status %+v, %v; want ready with one service", st, err)
	}
	disconnect := s.connect(t)
	s.until(t, "connected", func() bool {
		st, err := admin.Send(ctx, client, admin.CallStatus, admin.None{})
		return err == nil && len(st.Proxies) == 1 && len(st.Proxies[0].Types) == 1
	})
	if d, err := admin.Send(ctx, client, admin.CallDump, admin.DumpRequest{Proxy: "vm1.shop", Type: "cds"}); err != nil ||
		!hasResource(d, "outbound|80||web.shop.svc.cluster.local") {
		t.Errorf("dump %+v, %v; want the cluster of web", d, err)
	}
	if _, err := admin.Send(ctx, client, admin.CallDump, admin.DumpRequest{Proxy: "nobody", Type: ""}); !errors.Is(err, admin.ErrNotFound) {
		t.Errorf("dump of nobody: %v, want ErrNotFound", err)
	}

	s.put(t, "db.yaml", fmt.Sprintf(entryFile, "db"))
	s.until(t, "following a new file", func() bool {
		o, err := admin.Send(ctx, client, admin.CallObjects, admin.ObjectQuery{Kind: "se", Namespace: "shop", Name: "db"})
		return err == nil && len(o) == 1 && strings.HasSuffix(o[0].Origin.File, "db.yaml") && json.Valid(o[0].Spec)
	})
	s.put(t, "web.yaml", "kind: [")
	s.until(t, "showing the broken file", func() bool {
		p, err := admin.Send(ctx, client, admin.CallProblems, admin.None{})
		return err == nil && len(p) == 1 && strings.HasSuffix(p[0].File, "web.yaml")
	})
	if o, err := admin.Send(ctx, client, admin.CallObjects, admin.ObjectQuery{Kind: "serviceentry"}); err != nil || len(o) != 2 {
		t.Errorf("%d objects, %v; want both: invalid is not deleted", len(o), err)
	}
	disconnect()
	if code := stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if _, err := os.Stat(s.socket); err == nil {
		t.Error("the admin socket is left behind")
	}
}

func hasResource(d admin.Dump, name string) bool {
	for _, t := range d.Types {
		for _, r := range t.Resources {
			if r.Name == name && json.Valid(r.Body) && r.Bytes > 0 {
				return true
			}
		}
	}
	return false
}

// connect is a proxy that asks for clusters; what it returns ends it.
func (s *site) connect(t *testing.T) (disconnect func()) {
	t.Helper()
	conn, err := grpc.NewClient(s.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	st, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources")
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	// A DeltaDiscoveryRequest is its fields: node (1) with its id (1), type_url (2).
	node := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType),
		"sidecar~10.0.0.9~vm1.shop~shop.svc.cluster.local")
	req := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), node)
	req = protowire.AppendString(protowire.AppendTag(req, 2, protowire.BytesType),
		"type.googleapis.com/envoy.config.cluster.v3.Cluster")
	var msg, answer emptypb.Empty
	msg.ProtoReflect().SetUnknown(req)
	if err := errors.Join(st.SendMsg(&msg), st.RecvMsg(&answer)); err != nil {
		t.Errorf("first answer: %v", err)
	}
	return func() {
		cancel()
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// child runs ashored in a process of its own until it is ready. wait returns its exit code, -1 for
// a signal's.
func (s *site) child(t *testing.T) (cmd *exec.Cmd, wait func() int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self, s.args()...)
	cmd.Stderr = s.log
	ended, err := testchild.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	wait = func() int {
		_ = ended() // the exit code tells
		return cmd.ProcessState.ExitCode()
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // an error says that it has ended
		wait()
	})
	s.until(t, "ready", func() bool { return s.status("/ready") == http.StatusOK })
	return cmd, wait
}

// SIGHUP ends nothing; SIGTERM and SIGINT end the program in order, with a proxy connected too.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			cmd, wait := s.child(t)
			disconnect := s.connect(t)
			defer disconnect()
			for _, next := range []syscall.Signal{syscall.SIGHUP, signal} {
				s.until(t, "ready", func() bool { return s.status("/ready") == http.StatusOK })
				if err := cmd.Process.Signal(next); err != nil {
					t.Fatal(err)
				}
			}
			if code := wait(); code != 0 || !strings.Contains(s.log.String(), "ashored: ended") {
				t.Errorf("exit code %d, want 0; ashored said:\n%s", code, s.log)
			}
		})
	}
}

// A program that was killed starts again on the same folder, with the store checked.
func TestKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cmd, wait := s.child(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if code := wait(); code != -1 {
		t.Fatalf("exit code %d, want that of a signal", code)
	}
	if _, err := os.Stat(s.socket); err != nil {
		t.Fatalf("a killed program leaves its socket: %v", err)
	}
	if code := s.start(t)(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// What ends it stands in a log of JSON as a line of that, and nothing else is said.
func TestEndedInJSON(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	settings := write(t, "json.yaml", "log: {format: json}")
	var said testlog.Text
	code := run(t.Context(), append(s.args(), "--config", settings, "--files", "/does/not/exist"), &said, &said)
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	if last := lines[len(lines)-1]; code != exitFailed || !strings.Contains(last, `"@level":"error"`) ||
		!strings.Contains(last, "/does/not/exist") {
		t.Errorf("exit code %d, want %d; it ended with %s", code, exitFailed, last)
	}
}

// A first start without the folder of configuration fails, also where the store has saved the
// content of another folder.
func TestNoFolder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var said testlog.Text
	code := run(t.Context(), append(s.args(), "--files", "/does/not/exist"), &said, &said)
	if code != exitFailed || !strings.Contains(said.String(), "/does/not/exist") ||
		strings.Contains(said.String(), "serving") {
		t.Errorf("exit code %d, want %d; it said %q", code, exitFailed, &said)
	}
}

// A restart with another folder that is empty or missing, perhaps mistyped, loses nothing.
func TestMistypedFolder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	stop := s.start(t)
	s.until(t, "it is in use", func() bool { return s.uses(t, "web") })
	for folder, problem := range map[string]string{t.TempDir(): "lost all or most", "/does/not/exist": "/does/not/exist"} {
		stop()
		s.more = []string{"--files", folder}
		stop = s.start(t)
		s.until(t, "it is retained", func() bool { return s.problem(t, problem) && s.uses(t, "web") })
	}
}

// A restart without the folder of configuration serves what was active before.
func TestRestartWithoutFolder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	stop := s.start(t)
	s.until(t, "it is in use", func() bool { return s.uses(t, "web") })
	stop()
	files := filepath.Join(s.dir, "files")
	if err := os.Rename(files, files+".away"); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	s.until(t, "it is in use again", func() bool { return s.uses(t, "web") && s.problem(t, "cannot be read") })
}

func TestVersion(t *testing.T) {
	t.Parallel()
	want := "ashored " + build.Read().String() + "\n"
	var out, errOut bytes.Buffer
	if code := run(t.Context(), []string{"--version"}, &out, &errOut); code != 0 || out.String() != want {
		t.Errorf("exit code %d, %q, standard error %q; want %q", code, &out, &errOut, want)
	}
}

// Every mistake has one message that says what to do, and its exit code.
func TestMistakes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(t)
	other := newSite(t)
	taken := func(setting, value string) []string { return append(other.args(), "--set", setting+"="+value) }
	port := func(address string) string {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	inUse := func(setting string) string {
		return "address already in use: stop the process that uses it (\"ss -ltnp\" shows it), or choose another port " +
			"(setting " + setting + ")"
	}
	open := filepath.Join(other.dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"unknown flag", []string{"--frob"}, exitUsage, "unknown flag: --frob"},
		{"argument", []string{"frob"}, exitUsage, "frob"},
		{"no settings file", []string{"--config", "/does/not/exist"}, exitUsage, "there is no settings file /does/not/exist"},
		{"dev flag alone", []string{"--files", "x"}, exitUsage, `--files is for --dev: otherwise write "sources"`},
		{"dev without files", []string{"--dev"}, exitUsage, "--dev needs --files DIR"},
		{"wrong address", taken("xds.plaintextAddress", "nonsense"), exitFailed, "missing port in address (setting xds.plaintextAddress)"},
		{"xds port in use", taken("xds.plaintextAddress", s.metrics), exitFailed, inUse("xds.plaintextAddress")},
		{"metrics port in use", taken("metrics.address", s.metrics), exitFailed, inUse("metrics.address")},
		{"port of every address in use", taken("metrics.address", "\":"+port(s.metrics)+"\""), exitFailed, inUse("metrics.address")},
		{"socket in use", taken("admin.socket", s.socket), exitFailed, "another ashored serves there"},
		{"state in use", append(other.args(), "--set", "state="+filepath.Join(s.dir, "state"), "--set", "admin.socket="+filepath.Join(other.dir, "a.sock")), exitFailed, "setting state"},
		{"state of everybody", taken("state", open), exitFailed, "state folder " + open + " can be written by other users (drwxrwxrwx): make it this user's alone (chmod 700)"},
		{"no folder", append(other.args(), "--files", "/does/not/exist"), exitFailed, "/does/not/exist"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if code := run(ctx, tc.args, &out, &errOut); code != tc.code ||
				!strings.Contains(errOut.String(), tc.want) {
				t.Errorf("exit code %d, want %d; standard error %q, want %q in it", code, tc.code, errOut.String(),
					tc.want)
			}
		})
	}
}

// The whole program records what operators write.
func TestWrittenServed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(t)
	s.put(t, "api.yaml", fmt.Sprintf(entryFile, "api"))
	s.until(t, "recorded", func() bool {
		text, err := os.ReadFile(filepath.Join(s.dir, "state", "audit.jsonl"))
		return err == nil && slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool {
			return strings.Contains(line, audit.ConfigWrite) && strings.Contains(line, "ServiceEntry shop/api") &&
				strings.Contains(line, "api.yaml:1")
		})
	})
}

// serviceFile is a file with one ServiceEntry.
func serviceFile(name string) admin.Piece {
	return admin.Piece{File: name + ".yaml", Data: fmt.Appendf(nil, entryFile, name)}
}

// write creates a file for the test and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
