package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/task"
)

const (
	// unitPoll is the interval of checks of the unit.
	unitPoll = time.Second
	// takeoverPoll is the interval of checks of an Envoy that is taking over.
	takeoverPoll = 100 * time.Millisecond
	// takeoverTimeout is how long an Envoy may need to take over.
	takeoverTimeout = 2 * time.Minute
)

// Units runs Envoy as systemd units, one for each restart epoch. They outlive the agent, and the
// next agent continues with the Envoy that runs. If its program, arguments or bootstrap changed,
// the unit of the next epoch takes over by hot restart.
type Units struct {
	restarter
	manager Manager
	launch  *launch
	info    func(context.Context) (*adminv3.ServerInfo, error) // asks Envoy

	// unwatched is closed when Run no longer starts or replaces an Envoy.
	unwatched chan struct{}

	// The following fields belong to Run.
	current  int  // the epoch in use
	outdated bool // its files differ: it is to be replaced
}

// NewUnits returns Units that ask the Envoy that runs through admin.
func NewUnits(m Manager, c UnitsConfig, admin *Admin, log hclog.Logger) (*Units, error) {
	l, err := newLaunch(c)
	if err != nil {
		return nil, err
	}
	return &Units{restarter: restarter{log: log}, manager: m, launch: l, info: admin.ServerInfo,
		unwatched: make(chan struct{})}, nil
}

// Manager is systemd.
type Manager interface {
	// List returns the units that run, start or stop and whose name matches the glob pattern.
	List(ctx context.Context, pattern string) ([]string, error)
	// Look returns the state of a unit.
	Look(ctx context.Context, name string) (UnitState, error)
	// Start starts a unit and waits until its program runs.
	Start(ctx context.Context, name string) error
	// Kill kills the processes of a unit with SIGKILL.
	Kill(ctx context.Context, name string) error
	// Stop stops a unit and waits until it has ended.
	Stop(ctx context.Context, name string) error
	// Stopping reports whether the machine is shutting down.
	Stopping(ctx context.Context) (bool, error)
}

// UnitState is the state of a unit.
type UnitState struct {
	PID    int    // its main process; zero: none runs
	Active string // systemd's ActiveState
	Result string // systemd's Result: how its process ended last
}

// running reports whether the unit's process runs, or systemd is about to start it again.
func (s UnitState) running() bool {
	return s.Active == "active" || s.Active == "activating" || s.Active == "reloading"
}

// Stays implements Runner. Only a shutdown of the machine ends Envoy.
func (u *Units) Stays(ctx context.Context) bool {
	stopping, err := u.manager.Stopping(ctx)
	if err != nil {
		u.log.Warn("systemd does not report whether the machine is shutting down: envoy keeps running", "error", err)
	}
	return !stopping
}

// active returns the epochs whose units run, oldest first.
func (u *Units) active(ctx context.Context) ([]int, error) {
	names, err := u.manager.List(ctx, u.launch.unit+"*.service")
	if err != nil {
		return nil, fmt.Errorf("list the units %s*: %w", u.launch.unit, err)
	}
	var out []int
	for _, name := range names {
		if n, ok := u.launch.epoch(name); ok {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Resume implements Runner.
func (u *Units) Resume(ctx context.Context) (bool, error) {
	active, err := u.active(ctx)
	return len(active) > 0, err
}

// Run implements Runner.
func (u *Units) Run(ctx, last context.Context) error {
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(last, cancel)()
	u.repeat(watched, last, func(ctx context.Context) error {
		if err := u.begin(ctx); err != nil {
			return err
		}
		return u.watch(ctx)
	})
	close(u.unwatched)
	<-ctx.Done()
	return nil
}

// begin continues with the Envoy that runs, or starts one.
func (u *Units) begin(ctx context.Context) error {
	active, err := u.active(ctx)
	if err != nil {
		return err
	}
	if len(active) == 0 {
		return u.fresh(ctx)
	}
	newest := active[len(active)-1]
	unchanged := u.launch.current(newest)
	takingOver := len(active) > 1 // an agent ended while it replaced an Envoy
	if unchanged || u.serves(ctx, newest) || takingOver && u.waitServing(ctx, newest) == nil {
		u.log.Info("going on with the envoy that runs", "unit", u.launch.name(newest))
		u.use(newest, "")
		u.outdated = !unchanged
		return nil
	}
	u.log.Info("the envoy that runs does not serve, and is restarted with the current settings",
		"unit", u.launch.name(newest))
	if err := u.stop(ctx); err != nil {
		return err
	}
	return u.fresh(ctx)
}

// serves reports whether the Envoy of an epoch is live.
func (u *Units) serves(ctx context.Context, epoch int) bool {
	info, err := u.info(ctx)
	return err == nil && info.GetState() == adminv3.ServerInfo_LIVE &&
		int(info.GetCommandLineOptions().GetRestartEpoch()) == epoch
}

// fresh starts the first epoch.
func (u *Units) fresh(ctx context.Context) error {
	if err := errors.Join(u.launch.clean(nil), u.start(ctx, 0)); err != nil {
		return err
	}
	u.use(0, "")
	return nil
}

// start starts the unit of an epoch.
func (u *Units) start(ctx context.Context, epoch int) error {
	if err := u.launch.write(epoch); err != nil {
		return err
	}
	name := u.launch.name(epoch)
	if err := u.manager.Start(ctx, name); err != nil {
		return fmt.Errorf("start %s: %w; see \"journalctl -u %s\"", name, err, name)
	}
	return nil
}

// use makes an epoch the current one. failed is why it has previous settings although it should be
// replaced; empty otherwise.
func (u *Units) use(epoch int, failed string) {
	u.current, u.outdated = epoch, false
	u.change(func(s *State) {
		*s = State{PID: s.PID, Runs: s.Runs + 1, Unit: u.launch.name(epoch), Outdated: failed}
	})
}

// replace starts the next epoch, which takes over from the current one. If that fails and the
// current one still serves, it stays in use.
func (u *Units) replace(ctx context.Context) error {
	previous, next := u.current, u.current+1
	u.log.Info("envoy is replaced by hot restart: its program, arguments or bootstrap changed",
		"from", u.launch.name(previous), "to", u.launch.name(next))
	u.change(func(s *State) { s.Replacing = true })
	defer u.change(func(s *State) { s.Replacing = false })
	failed := u.start(ctx, next)
	if failed == nil {
		failed = u.waitServing(ctx, next)
	}
	if failed == nil {
		u.log.Info("envoy was replaced", "unit", u.launch.name(next))
		u.use(next, "")
		return u.launch.clean([]int{previous, next})
	}
	if ctx.Err() != nil {
		return ctx.Err() // the next agent continues from here
	}
	u.log.Error("the next envoy did not take over", "unit", u.launch.name(next), "error", failed)
	// Not SIGTERM: an Envoy that is taking over would end the previous one too.
	if err := errors.Join(u.manager.Kill(ctx, u.launch.name(next)), u.manager.Stop(ctx, u.launch.name(next))); err != nil {
		return err
	}
	if u.serves(ctx, previous) {
		u.use(previous, failed.Error())
		return nil
	}
	if err := u.stop(ctx); err != nil {
		return err
	}
	return u.fresh(ctx)
}

// waitServing waits until the Envoy of a starting epoch serves. Errors: it ended, or takes too
// long.
func (u *Units) waitServing(ctx context.Context, epoch int) error {
	ctx, cancel := context.WithTimeout(ctx, takeoverTimeout)
	defer cancel()
	name := u.launch.name(epoch)
	first, err := u.manager.Look(ctx, name)
	if err != nil {
		return err
	}
	for !u.serves(ctx, epoch) {
		now, err := u.manager.Look(ctx, name)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%s does not serve within %s", name, takeoverTimeout)
		case err != nil:
			return err
		case now.PID != first.PID:
			return fmt.Errorf("%s ended (%s); see \"journalctl -u %s\"", name, now.Result, name)
		}
		if !task.Sleep(ctx, takeoverPoll) {
			return fmt.Errorf("%s does not serve within %s", name, takeoverTimeout)
		}
	}
	return nil
}

// watch follows the current unit until it no longer runs, and replaces it if it is outdated. The
// error says how it ended.
func (u *Units) watch(ctx context.Context) error {
	pid := 0
	for {
		name := u.launch.name(u.current)
		now, err := u.manager.Look(ctx, name)
		active := []int(nil)
		if err == nil && u.outdated {
			active, err = u.active(ctx)
		}
		switch {
		case err != nil: // Envoy may still run
			u.log.Warn("systemd does not answer", "unit", name, "error", err)
		case !now.running():
			return fmt.Errorf("%s is %s (%s); see \"journalctl -u %s\"", name, now.Active, now.Result, name)
		default:
			u.observe(name, now, pid)
			pid = cmp.Or(now.PID, pid)
		}
		if err == nil && u.outdated && u.alone(active) {
			if err := u.replace(ctx); err != nil {
				return err
			}
			pid = 0
			continue
		}
		if !task.Sleep(ctx, unitPoll) {
			return ctx.Err()
		}
	}
}

// observe records the state of the current unit. pid is its last process; zero: none is known.
func (u *Units) observe(name string, now UnitState, pid int) {
	restarted := pid != 0 && now.PID != 0 && now.PID != pid
	u.change(func(s *State) {
		s.PID, s.Problem = now.PID, ""
		if now.PID == 0 {
			s.Problem = fmt.Sprintf("%s ended (%s), and systemd starts it again; see \"journalctl -u %s\"", name, now.Result,
				name)
		}
		if restarted {
			s.Runs++
		}
	})
	if restarted {
		u.log.Error("envoy ended unexpectedly, and systemd started it again", "unit", name)
	}
}

// alone reports whether the predecessor of the current epoch has ended. If the epoch were replaced
// earlier, it would end its predecessor at once, which cuts requests, or abort if the predecessor
// had exited. Source: Envoy, HotRestartingChild::sendParentTerminateRequest, and observed.
func (u *Units) alone(active []int) bool {
	if !slices.Contains(active, u.current-1) {
		return true
	}
	why := fmt.Sprintf("its successor starts when %s has ended, which has %s for its requests",
		u.launch.name(u.current-1), u.launch.ParentShutdown)
	if u.State().Waiting == "" {
		u.log.Info("envoy runs on with its previous program or settings", "reason", why)
	}
	u.change(func(s *State) { s.Waiting = why })
	return false
}

// Stop implements Runner.
func (u *Units) Stop(ctx context.Context) error {
	select {
	case <-u.unwatched:
	case <-ctx.Done():
		return ctx.Err()
	}
	return u.stop(ctx)
}

// stop ends all epochs, newest first: an Envoy ends its predecessor, and aborts if that has gone.
func (u *Units) stop(ctx context.Context) error {
	active, err := u.active(ctx)
	errs := []error{err}
	for _, n := range slices.Backward(active) {
		if err := u.manager.Stop(ctx, u.launch.name(n)); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", u.launch.name(n), err))
		}
	}
	return errors.Join(append(errs, u.launch.clean(nil))...)
}
