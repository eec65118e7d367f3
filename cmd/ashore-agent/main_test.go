package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/internal/build"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs the program with a command line.
func start(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := &program{func(hclog.Logger) {}, strings.NewReader(""), &out, &errs, nil}
	code = p.run(context.Background(), args)
	return code, out.String(), errs.String()
}

// Wrong use ends with 2 and says what and where; what cannot work ends with 1.
func TestErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.yaml")
	if err := os.WriteFile(file, []byte("dev: true\nworkload:\n  adresses: [127.0.0.2]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, bytes.Repeat([]byte("#"), 1<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := filepath.Join(dir, "wrong.yaml")
	if err := os.WriteFile(wrong,
		[]byte("dev: true\nworkload:\n  addresses: [127.0.0.2]\nports:\n  dns: -1\nlog: {level: loud}\nenvoy:\n  "+
			"concurrency: -1\nfoo: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ranges := filepath.Join(dir, "range.yaml")
	if err := os.WriteFile(ranges,
		[]byte("dev: true\nworkload:\n  addresses: [127.0.0.2]\nports:\n  dns: -1\nlog: {level: loud}\nenvoy:\n  "+
			"concurrency: -1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"run --config " + wrong, 2, wrong + ":9: foo: unknown setting; known here: dev, dns, drain, "},
		{"run --config " + ranges, 2, ranges + ":5: ports.dns: -1 is out of range"},
		{"run --config " + ranges, 2, ranges + `:6: log.level: "loud" is not known`},
		{"run --config " + ranges, 2, "envoy.concurrency: -1 is out of range"},
		{"run --config " + ranges, 2, "xds.addresses: not set"},
		{"run --set log.level=quiet --config " + ranges, 2, "log.level: \"quiet\" is not known"},
		{"run --labels a", 2, `invalid argument "a" for "--labels" flag: a must be formatted as key=value`},
		{"run --dev --set envoy.concurency=1", 2, `--set: envoy.concurency: unknown setting; did you mean ` +
			`"concurrency"?`},
		{"run --dev --set envoy.concurrency=x", 2, `--set: envoy.concurrency: want a whole number, got "x"`},
		{"run --dev --set envoy.concurrency", 2, "--set envoy.concurrency: want SETTING=VALUE, such as envoy.concurrency=2"},
		{"run --dev --xds 127.0.0.1:1 --address 127.0.0.2 --set envoy.concurrency=-1", 2,
			"envoy.concurrency: -1 is out of range"},
		{"strat", 2, `unknown command "strat"`},
		{"run --nope", 2, "unknown flag: --nope; see ashore-agent run --help"},
		{"run now", 2, `unexpected argument "now"`},
		{"run --dev --xds 127.0.0.1:1", 2, "workload.addresses: not set"},
		{"run --dev --xds 127.0.0.1 --address 127.0.0.2", 2, "--xds: xds.addresses: \"127.0.0.1\" is not host:port"},
		{"run --address 127.0.0.2", 2, "xds.addresses: not set; give host:port of the control plane, such as " +
			"127.0.0.1:15010"},
		{"run --config " + dir + "/none.yaml", 2, "none.yaml: no such file"},
		{"run --config " + large, 2, "large.yaml has more than 1048576 bytes"},
		{"run --config " + file, 2, file + `:3: workload.adresses: unknown setting; did you mean "addresses"?`},
		{"run --dev --xds 127.0.0.1:1 --address 127.0.0.2 --envoy " + dir + "/none", 2,
			"envoy.path: envoy is missing: there is no " + dir + "/none; install the package ashore-envoy, or name Envoy's " +
				"program"},
		{"run --dev --xds localhost --address 127.0.0.2", 2, `xds.addresses: "localhost" is not host:port; want one such ` +
			`as ashore.example.com:15012, with --dev 127.0.0.1:15010`},
	} {
		if code, _, stderr := start(t, strings.Fields(tc.args)...); code != tc.code ||
			!strings.Contains(stderr, tc.want) {
			t.Errorf("%s: exit code %d, %q; want %d, %q", tc.args, code, stderr, tc.code, tc.want)
		}
	}
}

// A flag wins over the file, the file over the default.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte(`
dev: true
xds: {addresses: ["127.0.0.1:15010"]}
workload:
  name: file
  namespace: file
  addresses: [127.0.0.9]
  labels: {app: file}
envoy: {drainTime: 7s}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := settingsOf(t, "--config", file, "--name", "flag", "--labels", "app=flag", "--labels", "version=v2")
	if w := s.Workload; w.Name != "flag" || w.Namespace != "file" || w.Addresses[0] != "127.0.0.9" {
		t.Errorf("workload %+v", w)
	}
	if l := s.Workload.Labels; len(l) != 2 || l["app"] != "flag" || s.Envoy.DrainTime != 7*time.Second {
		t.Errorf("labels %v, drain time %s; want the flag's labels alone and the file's 7s", l, s.Envoy.DrainTime)
	}
}

// settingsOf are those of a command line of run.
func settingsOf(t *testing.T, args ...string) agent.Settings {
	t.Helper()
	f, fs := &flags{}, pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.add(fs, "xds")
	if err := errors.Join(fs.Parse(args), f.joined()); err != nil {
		t.Fatal(err)
	}
	s, err := f.settings()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestVersion(t *testing.T) {
	t.Parallel()
	want := "ashore-agent " + build.Read().String() + "\n"
	for _, how := range []string{"version", "--version"} {
		if code, stdout, _ := start(t, how); code != 0 || stdout != want {
			t.Errorf("%s: exit code %d, %q; want %q", how, code, stdout, want)
		}
	}
	if code, stdout, _ := start(t, "run", "--help"); code != 0 ||
		!strings.Contains(stdout, "127.0.0.2:15020/healthz/ready") {
		t.Errorf("help: exit code %d, %q", code, stdout)
	}
}
