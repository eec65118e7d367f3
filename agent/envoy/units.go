package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	info    func(context.Context) (ServerInfo, error) // asks Envoy

	// unwatched is closed when Run no longer starts or replaces an Envoy.
	unwatched chan struct{}

	current epoch // belongs to Run
}

// NewUnits returns Units that ask the Envoy that runs through admin.
func NewUnits(m Manager, c UnitsConfig, admin *Admin, log hclog.Logger) (*Units, error) {
	l, err := newLaunch(c)
	if err != nil {
		return nil, err
	}
	return newUnits(m, l, admin.ServerInfo, log), nil
}

func newUnits(m Manager, l *launch, info func(context.Context) (ServerInfo, error), log hclog.Logger) *Units {
	return &Units{restarter: newRestarter(log), manager: m, launch: l, info: info, unwatched: make(chan struct{})}
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
		if n, ok := u.launch.number(name); ok {
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

// begin continues with the Envoy that runs, replaces it, or starts one.
func (u *Units) begin(ctx context.Context) error {
	active, err := u.active(ctx)
	if err != nil {
		return err
	}
	if len(active) == 0 {
		return u.fresh(ctx)
	}
	newest := active[len(active)-1]
	e, same, known := u.launch.read(newest)
	if known && same {
		u.log.Info("going on with the envoy that runs", "unit", u.launch.name(newest))
		u.use(e, "")
		return nil
	}
	if known && u.serves(ctx, newest) {
		return u.replace(ctx, e)
	}
	u.log.Info("the envoy that runs does not serve, and is restarted with the current settings",
		"unit", u.launch.name(newest))
	if err := u.stop(ctx); err != nil {
		return err
	}
	return u.fresh(ctx)
}

// serves reports whether the Envoy of an epoch is live.
func (u *Units) serves(ctx context.Context, number int) bool {
	info, err := u.info(ctx)
	return err == nil && info.State == "LIVE" && info.Options.Epoch == number
}

// fresh starts the first epoch.
func (u *Units) fresh(ctx context.Context) error {
	e := epoch{0, u.launch.base}
	if err := errors.Join(u.launch.clean(nil), u.start(ctx, e)); err != nil {
		return err
	}
	u.use(e, "")
	return nil
}

// start starts the unit of an epoch.
func (u *Units) start(ctx context.Context, e epoch) error {
	if err := u.launch.write(e); err != nil {
		return err
	}
	name := u.launch.name(e.number)
	if err := u.manager.Start(ctx, name); err != nil {
		return fmt.Errorf("start %s: %w; see \"journalctl -u %s\"", name, err, name)
	}
	return nil
}

// use makes an epoch the current one. outdated is why it has previous settings; empty: it has not.
func (u *Units) use(e epoch, outdated string) {
	u.current = e
	u.change(func(s *State) {
		*s = State{PID: s.PID, Runs: s.Runs + 1, Unit: u.launch.name(e.number), Outdated: outdated}
	})
}

// replace starts the next epoch, which takes over from previous. If that fails and previous still
// serves, previous stays in use.
func (u *Units) replace(ctx context.Context, previous epoch) error {
	next := epoch{previous.number + 1, previous.base}
	u.log.Info("envoy is replaced by hot restart: its program, arguments or bootstrap changed",
		"from", u.launch.name(previous.number), "to", u.launch.name(next.number))
	if err := u.waitAlone(ctx, previous); err != nil {
		return err
	}
	u.change(func(s *State) { s.Replacing = true })
	defer u.change(func(s *State) { s.Replacing = false })
	failed := u.start(ctx, next)
	if failed == nil {
		failed = u.waitServing(ctx, next.number)
	}
	if failed == nil {
		u.log.Info("envoy was replaced", "unit", u.launch.name(next.number))
		u.use(next, "")
		return u.launch.clean([]int{previous.number, next.number})
	}
	if ctx.Err() != nil {
		return ctx.Err() // the next agent continues from here
	}
	u.log.Error("the next envoy did not take over", "unit", u.launch.name(next.number), "error", failed)
	// Not SIGTERM: an Envoy that is taking over would end the previous one too.
	if err := errors.Join(u.manager.Kill(ctx, u.launch.name(next.number)),
		u.manager.Stop(ctx, u.launch.name(next.number))); err != nil {
		return err
	}
	if u.serves(ctx, previous.number) {
		u.use(previous, failed.Error())
		return nil
	}
	if err := u.stop(ctx); err != nil {
		return err
	}
	return u.fresh(ctx)
}

// waitAlone waits until the predecessor of an epoch has ended. If the epoch were replaced earlier,
// it would end its predecessor at once, which cuts requests, or abort if the predecessor had exited.
// Source: Envoy, HotRestartingChild::sendParentTerminateRequest, and observed.
func (u *Units) waitAlone(ctx context.Context, e epoch) error {
	name := u.launch.name(e.number)
	for logged := false; e.number > 0; logged = true {
		now, err := u.manager.Look(ctx, name)
		if err != nil || !now.running() {
			return errors.Join(err, fmt.Errorf("%s is %s (%s)", name, now.Active, now.Result))
		}
		active, err := u.active(ctx)
		if err != nil {
			return err
		}
		if !slices.Contains(active, e.number-1) {
			return nil
		}
		if !logged {
			why := fmt.Sprintf("its successor starts when %s has ended, which has %s for its requests",
				u.launch.name(e.number-1), u.launch.shutdown)
			u.log.Info("envoy runs on with its previous program or settings", "reason", why)
			u.use(e, "")
			u.change(func(s *State) { s.Waiting = why })
		}
		u.change(func(s *State) { s.PID = now.PID })
		if !task.Sleep(ctx, unitPoll) {
			return ctx.Err()
		}
	}
	return nil
}

// waitServing waits until the Envoy of a starting epoch serves. Errors: it ended, or takes too
// long.
func (u *Units) waitServing(ctx context.Context, number int) error {
	ctx, cancel := context.WithTimeout(ctx, takeoverTimeout)
	defer cancel()
	name := u.launch.name(number)
	first, err := u.manager.Look(ctx, name)
	if err != nil {
		return err
	}
	for !u.serves(ctx, number) {
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

// watch follows the current unit until it no longer runs. The error says how it ended.
func (u *Units) watch(ctx context.Context) error {
	name, pid := u.launch.name(u.current.number), 0
	for {
		now, err := u.manager.Look(ctx, name)
		if err != nil { // Envoy may still run
			u.log.Warn("systemd does not answer", "unit", name, "error", err)
			if !task.Sleep(ctx, unitPoll) {
				return ctx.Err()
			}
			continue
		}
		if !now.running() {
			return fmt.Errorf("%s is %s (%s); see \"journalctl -u %s\"", name, now.Active, now.Result, name)
		}
		restarted := pid != 0 && now.PID != 0 && now.PID != pid
		u.change(func(s *State) {
			s.PID, s.Trouble = now.PID, ""
			if now.PID == 0 {
				s.Trouble = fmt.Sprintf("%s ended (%s), and systemd starts it again; see \"journalctl -u %s\"", name,
					now.Result, name)
			}
			if restarted {
				s.Runs++
			}
		})
		if restarted {
			u.log.Error("envoy ended unexpectedly, and systemd started it again", "unit", name)
			task.Poke(u.ended)
		}
		pid = cmp.Or(now.PID, pid)
		if !task.Sleep(ctx, unitPoll) {
			return ctx.Err()
		}
	}
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
