package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/agent/envoy"
	"github.com/ashore-mesh/ashore/agent/host"
	"github.com/ashore-mesh/ashore/agent/intercept"
	"github.com/ashore-mesh/ashore/internal/machine"
	"github.com/ashore-mesh/ashore/internal/testenvoy"
)

// mainEnvoys are the patterns of the Envoy of ashore-agent.service.
const mainEnvoys = "ashore-envoy@[0-9].service ashore-envoy@[0-9][0-9].service ashore-envoy@[0-9][0-9][0-9].service"

// fakeHost is a machine whose systemd and rules are fakes. This program joins as the user of the
// test.
type fakeHost struct {
	*host.Host
	steps []string        // what was changed
	on    map[string]bool // units that are active and enabled
	rules bool            // they are installed
	fails map[string]error
}

func newFakeHost(t *testing.T) *fakeHost {
	t.Helper()
	dir := t.TempDir()
	envoy := filepath.Join(dir, "envoy")
	if err := os.Symlink(testenvoy.Path(t), envoy); err != nil {
		t.Fatal(err)
	}
	f := &fakeHost{on: map[string]bool{}, fails: map[string]error{}}
	f.Host = &host.Host{Folder: filepath.Join(dir, "s"), Systemd: f, Envoy: envoy, Resolver: filepath.Join(dir, "none"),
		NFT: "/bin/true", SharedMemory: t.TempDir(), Rules: fakeRules{f},
		Owner: func(s machine.Socket) (*machine.Owner, error) {
			if s.Address.Addr().IsUnspecified() {
				return nil, nil // other tests may have it on their addresses
			}
			return machine.PortOwner(s)
		},
		As:    func(f func() error) error { return f() },
		Ready: func(ctx context.Context, _ string) error { return errors.Join(f.fails["ready"], ctx.Err()) }}
	return f
}

func (f *fakeHost) step(text string) error {
	f.steps = append(f.steps, text)
	return f.fails[text]
}

func (f *fakeHost) Run(_ context.Context, args ...string) error {
	for _, unit := range args[1:] {
		f.on[unit] = args[0] == "enable"
	}
	return f.step(strings.Join(args, " "))
}

func (f *fakeHost) Show(_ context.Context, names ...string) ([]machine.Unit, error) {
	var out []machine.Unit
	for _, name := range names {
		switch {
		case f.on[name]:
			out = append(out, machine.Unit{Name: name, Active: "active", Sub: "running", File: "enabled"})
		default:
			out = append(out, machine.Unit{Name: name, Active: "inactive", Sub: "dead", File: "disabled"})
		}
	}
	return out, nil
}

type fakeRules struct{ f *fakeHost }

func (r fakeRules) Install(context.Context, intercept.Config, intercept.Checks) error {
	err := r.f.step("install rules")
	r.f.rules = err == nil
	return err
}

func (r fakeRules) Status(context.Context) (intercept.Status, error) {
	return intercept.Status{Installed: r.f.rules}, nil
}

func (r fakeRules) Delete(context.Context) error {
	r.f.rules = false
	return r.f.step("delete rules")
}

// start runs a command line on the machine. steps are what it changed.
func (f *fakeHost) start(ctx context.Context, args ...string) (stdout, stderr string, steps []string, err error) {
	var out, errs bytes.Buffer
	var stdin bytes.Buffer
	cmd := (&program{func(hclog.Logger) {}, &stdin, &out, &errs, f.Host}).command()
	cmd.SetArgs(args)
	f.steps = nil
	err = cmd.ExecuteContext(ctx)
	return out.String(), errs.String(), f.steps, err
}

// joinArgs are those of a line for the workload web-1.shop at an address.
func (f *fakeHost) joinArgs(l line, address string, more ...string) []string {
	return append(append(l.args(), "--name", "web-1", "--address", address, "--state",
		filepath.Join(f.Folder, "web-1.shop")), more...)
}

// The first workload has the unit, the rules and the link; pasting again changes nothing. leave
// takes all of it back, and can be repeated.
func TestHost(t *testing.T) {
	t.Parallel()
	f, next := newFakeHost(t), authority(t, "127.0.15.60")
	args := f.joinArgs(next(), "127.0.15.61")
	stdout, stderr, steps, err := f.start(t.Context(), args...)
	want := []string{"enable --quiet --now ashore-agent.service", "install rules",
		"enable --quiet --now ashore-intercept.service"}
	if err != nil || !slices.Equal(steps, want) || !strings.HasPrefix(stdout,
		"web-1.shop has joined the mesh, at 127.0.15.61. Its status:\nidentity       ok ") {
		t.Fatalf("%v, steps %q, %q, %q", err, steps, stdout, stderr)
	}
	if s, err := agent.SavedSettings(filepath.Join(f.Folder, "web-1.shop")); err != nil ||
		s.Workload.Interception != "tproxy" {
		t.Errorf("interception %q, %v", s.Workload.Interception, err)
	}
	stdout, stderr, steps, err = f.start(t.Context(), args...)
	if err != nil || len(steps) != 0 || !strings.Contains(stdout, "at 127.0.15.61. Nothing was changed") {
		t.Errorf("pasted again: %v, steps %q, %q, %q", err, steps, stdout, stderr)
	}
	f.rules = false // "intercept remove"; the unit continues
	if _, _, steps, err := f.start(t.Context(), args...); err != nil || !slices.Equal(steps, want[1:]) {
		t.Errorf("after the rules were removed: %v, steps %q, want %q", err, steps, want[1:])
	}

	second := append(next().args(), "--name", "web-2", "--state", filepath.Join(f.Folder, "web-2.shop"))
	if _, _, steps, err := f.start(t.Context(), second...); !isUsage(err) ||
		!strings.Contains(err.Error(), "add --name NAME --address ADDRESS --interception none") || len(steps) != 0 {
		t.Errorf("a second workload without an address: %v, steps %q", err, steps)
	}
	_, _, steps, err = f.start(t.Context(), append(second, "--address", "127.0.15.62", "--interception", "none")...)
	if err == nil || !strings.Contains(err.Error(), "goes through the Envoy of web-1.shop") || len(steps) != 0 {
		t.Errorf("a second workload beside interception: %v, steps %q", err, steps)
	}

	main := filepath.Join(f.Folder, "web-1.shop")
	stdout, _, _, err = f.start(t.Context(), "status", "--state", main)
	if err == nil || !strings.Contains(stdout,
		"units          ok    ashore-agent.service is active (running), enabled; ashore-intercept.service is active "+
			"(running), enabled\n") {
		t.Errorf("status: %v, %s", err, stdout)
	}
	f.rules, f.on["ashore-agent.service"] = false, false
	stdout, _, _, _ = f.start(t.Context(), "status", "--state", main)
	for _, want := range []string{"units          bad   the rules that bring traffic to Envoy are not installed; " +
		"ashore-agent.service is inactive (dead), disabled",
		"fix:  systemctl enable --now ashore-agent.service (", "does not run); ashore-agent intercept install\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("status without rules and agent: want %q in\n%s", want, stdout)
		}
	}

	f.on["ashore-agent.service"] = true
	memory := filepath.Join(f.SharedMemory, envoy.SharedMemory(agent.UnitFolder, ""))
	if err := os.WriteFile(memory, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, steps, err = f.start(t.Context(), "leave", "--yes", "--state", main)
	want = []string{"delete rules", "disable --quiet --now ashore-intercept.service",
		"disable --quiet --now ashore-agent.service", "stop ashore-agent.socket ashore-agent.service",
		"stop " + mainEnvoys, "reset-failed " + mainEnvoys}
	if err != nil || !strings.Contains(stdout, "has left the mesh") || !slices.Equal(steps, want) {
		t.Errorf("leave: %v, steps %q, %q, %q", err, steps, stdout, stderr)
	}
	for _, folder := range []string{f.Folder, f.SharedMemory} {
		if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}

// The folder of the states belongs to the agent's user. Whatever its link names, root deletes
// nothing outside the folder.
func TestHostHostileLink(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"..", ".", "../other", "/etc/other", "s/../../other"} {
		f := newFakeHost(t)
		other := filepath.Join(filepath.Dir(f.Folder), "other")
		if err := errors.Join(os.Mkdir(f.Folder, 0o700), os.Mkdir(other, 0o700),
			os.Symlink(target, filepath.Join(f.Folder, agent.MainLink))); err != nil {
			t.Fatal(err)
		}
		err := f.Clean(t.Context())
		if want := []string{"delete rules", "disable --quiet --now ashore-intercept.service"}; err != nil ||
			!slices.Equal(f.steps, want) {
			t.Errorf("link to %s: %v, steps %q, want %q", target, err, f.steps, want)
		}
		if err := f.Leave(t.Context(), f.Folder+"/"+target); err == nil {
			t.Errorf("leave %s: no error", target)
		}
		for _, folder := range []string{f.Folder, other} {
			if _, err := os.Stat(folder); err != nil {
				t.Errorf("link to %s: %v", target, err)
			}
		}
	}
}

// A further workload of a machine without interception has an instance of the template unit, and no
// DNS.
func TestHostFurther(t *testing.T) {
	t.Parallel()
	f, next := newFakeHost(t), authority(t, "127.0.15.63")
	if _, stderr, _, err := f.start(t.Context(), f.joinArgs(next(), "127.0.15.64", "--interception",
		"none")...); err != nil {
		t.Fatal(err, stderr)
	}
	state := filepath.Join(f.Folder, "web-2.shop")
	_, stderr, steps, err := f.start(t.Context(), append(next().args(), "--name", "web-2", "--state", state,
		"--address", "127.0.15.65", "--interception", "none")...)
	if err != nil || !slices.Equal(steps, []string{"enable --quiet --now ashore-agent@web-2.shop.service"}) {
		t.Errorf("a second workload: %v, steps %q, %q", err, steps, stderr)
	}
	if s, err := agent.SavedSettings(state); err != nil || s.Ports.DNS != 0 {
		t.Errorf("the second workload answers DNS at %d, %v", s.Ports.DNS, err)
	}
	_, stderr, steps, err = f.start(t.Context(), "leave", "--yes", "--state", state)
	if want := []string{"disable --quiet --now ashore-agent@web-2.shop.service",
		"stop " + strings.ReplaceAll(mainEnvoys, "@", "@web-2.shop-"), "reset-failed " + strings.ReplaceAll(mainEnvoys,
			"@", "@web-2.shop-")}; err != nil || !slices.Equal(steps, want) {
		t.Errorf("the second leaves: %v, steps %q, %q", err, steps, stderr)
	}
}

// A step that fails after the join is undone, and the same command continues after the cause is
// removed.
func TestHostUndo(t *testing.T) {
	t.Parallel()
	cause := errors.New("the cause")
	for name, tc := range map[string]struct {
		fails string
		undo  []string
	}{
		"the agent does not start":   {"enable --quiet --now ashore-agent.service", nil},
		"the workload is not ready":  {"ready", nil},
		"the rules fail their check": {"install rules", nil},
		"the unit of the rules": {"enable --quiet --now ashore-intercept.service", []string{"delete rules",
			"disable --quiet --now ashore-intercept.service"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, next := newFakeHost(t), authority(t, "127.0.15.64")
			args := f.joinArgs(next(), "127.0.15.65")
			f.fails[tc.fails] = cause
			stdout, _, steps, err := f.start(t.Context(), args...)
			if !errors.Is(err, cause) || !strings.Contains(err.Error(), "the machine works as before") || stdout != "" {
				t.Errorf("%v, %q", err, stdout)
			}
			if want := append(tc.undo, "disable --quiet --now ashore-agent.service",
				"stop ashore-agent.socket ashore-agent.service", "stop "+mainEnvoys,
				"reset-failed "+mainEnvoys); !slices.Equal(steps[len(steps)-len(want):], want) || f.rules {
				t.Errorf("steps %q, want %q at the end", steps, want)
			}
			delete(f.fails, tc.fails)
			if stdout, stderr, _, err := f.start(t.Context(), args...); err != nil ||
				!strings.Contains(stdout, "has joined the mesh") {
				t.Errorf("again: %v, %q, %q", err, stdout, stderr)
			}
		})
	}
}

// An interrupted join is undone too.
func TestHostInterrupted(t *testing.T) {
	t.Parallel()
	f, next := newFakeHost(t), authority(t, "127.0.15.66")
	ctx, cancel := context.WithCancel(t.Context())
	f.Host.Ready = func(context.Context, string) error {
		cancel()
		return ctx.Err()
	}
	_, _, steps, err := f.start(ctx, f.joinArgs(next(), "127.0.15.67")...)
	if err == nil || !strings.Contains(err.Error(),
		"interrupted") || !slices.Equal(steps, []string{"enable --quiet --now ashore-agent.service",
		"disable --quiet --now ashore-agent.service", "stop ashore-agent.socket ashore-agent.service",
		"stop " + mainEnvoys, "reset-failed " + mainEnvoys}) {
		t.Errorf("%v, steps %q", err, steps)
	}
}

// The machine is looked at before the token is used: all errors are reported, and nothing is
// changed.
func TestHostChecks(t *testing.T) {
	t.Parallel()
	f, next := newFakeHost(t), authority(t, "127.0.15.68")
	taken, err := net.Listen("tcp", "127.0.15.69:15020")
	if err != nil {
		t.Fatal(err)
	}
	f.Envoy += "-none"
	f.NFT += "-none"
	if err := os.Symlink("nowhere", f.Resolver); err != nil {
		t.Fatal(err)
	}
	args := f.joinArgs(next(), "127.0.15.69")
	_, _, steps, err := f.start(t.Context(), args...)
	for _, want := range []string{"install the package ashore-envoy", "needs the program nft", "is a link to nowhere",
		fmt.Sprintf("127.0.15.69:15020 is in use by ashore-agent.te (process %d)", os.Getpid())} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := os.Stat(f.Folder); len(steps) != 0 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("steps %q, %v", steps, err)
	}
	if err := errors.Join(taken.Close(), os.Remove(f.Resolver)); err != nil {
		t.Fatal(err)
	}
	f.Envoy = strings.TrimSuffix(f.Envoy, "-none")
	if _, stderr, _, err := f.start(t.Context(), append(args, "--interception", "none")...); err != nil {
		t.Errorf("with the causes removed: %v, %q", err, stderr)
	}
}
