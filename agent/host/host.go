package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/agent/intercept"
	"github.com/ashore-mesh/ashore/internal/machine"
	"github.com/ashore-mesh/ashore/internal/task"
)

// The units of the package ashore-agent. Further workloads of a machine have a unit of the
// template.
const (
	mainUnit      = "ashore-agent.service"
	dnsSocket     = "ashore-agent.socket"
	interceptUnit = "ashore-intercept.service"
)

// Interception installs and removes the rules that bring a machine's traffic to Envoy. It is an
// intercept.Machine.
type Interception interface {
	Install(ctx context.Context, c intercept.Config, checks intercept.Checks) error
	Status(ctx context.Context) (intercept.Status, error)
	Delete(ctx context.Context) error
}

// Systemd changes and shows units. It is a machine.Systemctl.
type Systemd interface {
	Run(ctx context.Context, args ...string) error
	Show(ctx context.Context, names ...string) ([]machine.Unit, error)
}

// Host is a machine whose systemd runs the agent. Its fields are what tests replace.
type Host struct {
	Folder   string // of the state folders
	Systemd  Systemd
	Envoy    string // its program
	Resolver string // the resolver's settings
	NFT      string // the program that the rules need
	// SharedMemory is the folder of shared memory.
	SharedMemory string
	Rules        Interception
	Owner        func(machine.Socket) (*machine.Owner, error)
	// As calls f as the agent's user.
	As func(f func() error) error
	// Ready waits until the workload of a state folder is ready.
	Ready func(ctx context.Context, state string) error
}

// This returns this machine; nil without root, systemd or the package ashore-agent.
func This() *Host {
	if os.Geteuid() != 0 || !machine.HasSystemd() {
		return nil
	}
	u, err := user.Lookup("ashore-agent")
	if err != nil {
		return nil
	}
	return &Host{Folder: agent.PackagedState, Systemd: machine.Systemctl("systemctl"), Envoy: agent.PackagedEnvoy,
		Resolver: "/etc/resolv.conf", NFT: "nft",
		SharedMemory: "/dev/shm", Rules: intercept.Machine{}, Owner: machine.PortOwner, As: asUser(u), Ready: waitReady}
}

// NeedsRoot reports whether This is nil only because this process is not root.
func NeedsRoot() bool {
	_, err := user.Lookup("ashore-agent")
	return err == nil && os.Geteuid() != 0 && machine.HasSystemd()
}

// Runs reports whether units run the workload of a state folder. h may be nil.
func (h *Host) Runs(state string) bool {
	return h != nil && filepath.Dir(filepath.Clean(state)) == h.Folder
}

// main returns the state folder of the workload that mainUnit runs; empty: there is none. The link
// belongs to the agent's user, so one that leads outside Folder is ignored.
func (h *Host) main() string {
	name, err := os.Readlink(filepath.Join(h.Folder, agent.MainLink))
	if err != nil || name == "." || name == ".." || filepath.Base(name) != name {
		return ""
	}
	return filepath.Join(h.Folder, name)
}

// joined reports whether a state folder has an identity, even an unusable one.
func joined(state string) bool {
	_, _, err := agent.JoinedAs(state)
	return !errors.Is(err, agent.ErrNoIdentity)
}

// unit returns the unit of the agent of a state folder.
func (h *Host) unit(state string) string {
	if h.main() == state {
		return mainUnit
	}
	return "ashore-agent@" + filepath.Base(state) + ".service"
}

// envoys returns patterns of the units of a workload's Envoy. A restart epoch has up to three
// digits.
func (h *Host) envoys(state string) []string {
	prefix := "ashore-envoy@"
	if h.main() != state {
		prefix += filepath.Base(state) + "-"
	}
	var out []string
	for n := range 3 {
		out = append(out, prefix+strings.Repeat("[0-9]", n+1)+".service")
	}
	return out
}

// asUser returns a function that calls another with the effective user and group of u. They apply
// to all threads of this process.
func asUser(u *user.User) func(f func() error) error {
	return func(f func() error) (err error) {
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return err
		}
		if err := syscall.Setegid(gid); err != nil {
			return fmt.Errorf("become the group of %s: %w", u.Username, err)
		}
		defer func() { err = errors.Join(err, syscall.Setegid(os.Getgid())) }()
		if err := syscall.Seteuid(uid); err != nil {
			return fmt.Errorf("become the user %s: %w", u.Username, err)
		}
		defer func() { err = errors.Join(err, syscall.Seteuid(os.Getuid())) }()
		return f()
	}
}

// undoTime is the maximum time to undo a Join.
const undoTime = 30 * time.Second

// readyTime is the maximum time until a workload is ready.
const readyTime = time.Minute

// waitReady waits until the agent of a state folder reports that Envoy is ready. The error is the
// report.
func waitReady(ctx context.Context, state string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for {
		r, err := agent.Status(context.WithoutCancel(ctx), state)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(r.Lines, func(l agent.Line) bool { return l.Name == "envoy" && l.State == "ok" }) {
			return nil
		}
		if !task.Sleep(ctx, 200*time.Millisecond) {
			var text strings.Builder
			err := r.Write(&text)
			return errors.Join(errors.New(text.String()), err)
		}
	}
}
