package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/wholefile"
)

const (
	// unitPoll is between two looks at the unit.
	unitPoll = time.Second
	// takeoverPoll is between two looks at an Envoy that is taking over.
	takeoverPoll = 100 * time.Millisecond
	// takeoverTimeout bounds how long an Envoy may take to take over.
	takeoverTimeout = 2 * time.Minute
	// maxBaseID bounds Envoy's base ID, which Envoy multiplies by 10 in 32 bits.
	maxBaseID = 1 << 27
)

// units runs Envoy as systemd units, one for each restart epoch. They outlive the agent: the next
// agent goes on with the Envoy that runs. When its program, arguments or bootstrap changed, the
// unit of the next epoch takes over by hot restart.
type units struct {
	restarter
	manager unitManager
	launch  *launch
	info    func(context.Context) (serverInfo, error) // asks Envoy

	// unwatched is closed when Run starts and replaces Envoys no more.
	unwatched chan struct{}

	current epoch // belongs to Run
}

// unitManager is systemd.
type unitManager interface {
	// List returns the units that run, start or stop and whose name matches the glob pattern.
	List(ctx context.Context, pattern string) ([]string, error)
	// Look says how a unit is.
	Look(ctx context.Context, name string) (unitState, error)
	// Start starts a unit and waits until its program runs.
	Start(ctx context.Context, name string) error
	// Kill kills the processes of a unit; those do not notice.
	Kill(ctx context.Context, name string) error
	// Stop stops a unit and waits until it has ended.
	Stop(ctx context.Context, name string) error
	// Stopping says whether the machine is shutting down.
	Stopping(ctx context.Context) (bool, error)
}

// unitState is how a unit is.
type unitState struct {
	PID    int    // its main process; zero: none runs
	Active string // systemd's ActiveState
	Result string // how its process ended last
}

// running says whether the unit's process runs, or systemd is about to start it again.
func (s unitState) running() bool {
	return s.Active == "active" || s.Active == "activating" || s.Active == "reloading"
}

// epoch is one Envoy: its restart epoch, and what it shares with those that it replaced.
type epoch struct{ number, base int }

// launch is everything that Envoy is started with.
type launch struct {
	unit      string // of the unit's name what is before the epoch: "ashore-envoy@", "ashore-envoy@web-"
	files     string // of paths what is before the epoch: "/run/ashore-agent/envoy-"
	args      []string
	bootstrap []byte
	shutdown  time.Duration // how long an Envoy that was replaced may finish its requests
	program   string        // which program it is: another one has another text
}

// newLaunch describes how to start Envoy as a unit with these settings.
func newLaunch(s *Settings, path string, bootstrap []byte) (*launch, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("look at Envoy: %w", err)
	}
	l := &launch{unit: "ashore-envoy@", files: filepath.Join(s.unitFolder(), "envoy-"), bootstrap: bootstrap,
		shutdown: s.Envoy.ParentShutdown,
		program: fmt.Sprintf("%s, %d bytes, changed %s", path, info.Size(),
			info.ModTime().UTC().Format(time.RFC3339Nano))}
	if workload := s.Envoy.workload; workload != "" {
		l.unit += workload + "-"
		l.files += workload + "-"
	}
	l.args = append(commonArguments(s),
		"--socket-path", filepath.Join(s.envoyFolder(), "hot"), "--socket-mode", "600",
		"--parent-shutdown-time-s", seconds(s.Envoy.ParentShutdown),
		"--skip-hot-restart-parent-stats")
	return l, nil
}

func newUnits(m unitManager, l *launch, info func(context.Context) (serverInfo, error), log hclog.Logger) *units {
	return &units{restarter: newRestarter(log), manager: m, launch: l, info: info, unwatched: make(chan struct{})}
}

func (l *launch) name(number int) string            { return l.unit + strconv.Itoa(number) + ".service" }
func (l *launch) environmentFile(number int) string { return l.files + strconv.Itoa(number) + ".env" }
func (l *launch) bootstrapFile(number int) string   { return l.files + strconv.Itoa(number) + ".json" }

// number is the epoch of a unit's name.
func (l *launch) number(name string) (int, bool) {
	text, ours := strings.CutPrefix(strings.TrimSuffix(name, ".service"), l.unit)
	n, err := strconv.Atoi(text)
	return n, ours && err == nil && n >= 0
}

// environment is the content of a unit's environment file.
func (l *launch) environment(e epoch) []byte {
	args := append(slices.Clone(l.args), "--config-path", l.bootstrapFile(e.number),
		"--base-id", strconv.Itoa(e.base), "--restart-epoch", strconv.Itoa(e.number))
	if e.number > 0 { // systemd starts it again after a crash, when the one before has ended
		args = append(args, "--skip-hot-restart-on-no-parent")
	}
	return fmt.Appendf(nil, "# Written by ashore-agent. Program: %s\nENVOY_ARGS=%s\n", l.program,
		strings.Join(args, " "))
}

var baseIDArgument = regexp.MustCompile(` --base-id (\d{1,9}) `)

// read returns an epoch whose files are there, and whether they are those that this launch would
// write.
func (l *launch) read(number int) (e epoch, same, ok bool) {
	environment, err := readSmall(l.environmentFile(number))
	if err != nil {
		return e, false, false
	}
	found := baseIDArgument.FindSubmatch(environment)
	if found == nil {
		return e, false, false
	}
	base, err := strconv.Atoi(string(found[1]))
	if err != nil {
		return e, false, false
	}
	e = epoch{number, base}
	bootstrap, err := readSmall(l.bootstrapFile(number))
	same = err == nil && bytes.Equal(bootstrap, l.bootstrap) && bytes.Equal(environment, l.environment(e))
	return e, same, true
}

// write writes the files of an epoch, for Envoy's group to read.
func (l *launch) write(e epoch) error {
	for path, data := range map[string][]byte{l.bootstrapFile(e.number): l.bootstrap,
		l.environmentFile(e.number): l.environment(e)} {
		if err := wholefile.Write(path, data); err != nil {
			return diskError("start Envoy", err)
		}
		if err := os.Chmod(path, 0o640); err != nil {
			return diskError("start Envoy", err)
		}
	}
	return nil
}

// clean removes the files of epochs other than these.
func (l *launch) clean(keep []int) error {
	found, err := filepath.Glob(l.files + "*")
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range found {
		number, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(path, l.files), filepath.Ext(path)))
		if err == nil && !slices.Contains(keep, number) {
			errs = append(errs, removeMissing(path))
		}
	}
	return errors.Join(errs...)
}

// Stays implements envoyRunner: only the machine's shutdown ends Envoy.
func (u *units) Stays(ctx context.Context) bool {
	stopping, err := u.manager.Stopping(ctx)
	if err != nil {
		u.log.Warn("whether the machine shuts down is not known: envoy runs on", "error", err)
	}
	return !stopping
}

// active lists the epochs whose units run, the oldest first.
func (u *units) active(ctx context.Context) ([]int, error) {
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

// Resume implements envoyRunner.
func (u *units) Resume(ctx context.Context) (bool, error) {
	active, err := u.active(ctx)
	return len(active) > 0, err
}

// Run implements envoyRunner.
func (u *units) Run(ctx, last context.Context) error {
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

// begin goes on with the Envoy that runs, replaces it, or starts one.
func (u *units) begin(ctx context.Context) error {
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

// serves says whether the Envoy of an epoch is live.
func (u *units) serves(ctx context.Context, number int) bool {
	info, err := u.info(ctx)
	return err == nil && info.State == "LIVE" && info.Options.Epoch == number
}

// fresh starts an Envoy that takes over from none.
func (u *units) fresh(ctx context.Context) error {
	e := epoch{0, 1 + rand.IntN(maxBaseID-1)}
	if err := errors.Join(u.launch.clean(nil), u.launch.write(e)); err != nil {
		return err
	}
	if err := u.manager.Start(ctx, u.launch.name(0)); err != nil {
		return fmt.Errorf("start %s: %w; see \"journalctl -u %s\"", u.launch.name(0), err, u.launch.name(0))
	}
	u.use(e, "")
	return nil
}

// use makes an epoch the current one; outdated is why it runs with previous settings.
func (u *units) use(e epoch, outdated string) {
	u.current = e
	u.change(func(s *envoyState) {
		s.Runs++
		*s = envoyState{PID: s.PID, Runs: s.Runs, Unit: u.launch.name(e.number), Outdated: outdated}
	})
}

// replace has the next epoch take over from one that serves. When the next one fails and the
// previous one still serves, that one stays.
func (u *units) replace(ctx context.Context, previous epoch) error {
	next := epoch{previous.number + 1, previous.base}
	u.log.Info("envoy is replaced by hot restart: its program, arguments or bootstrap changed",
		"from", u.launch.name(previous.number), "to", u.launch.name(next.number))
	if err := u.waitAlone(ctx, previous); err != nil {
		return err
	}
	u.change(func(s *envoyState) { s.Replacing = true })
	defer u.change(func(s *envoyState) { s.Replacing = false })
	failed := u.takeOver(ctx, next)
	if failed == nil {
		u.log.Info("envoy was replaced", "unit", u.launch.name(next.number))
		u.use(next, "")
		return u.launch.clean([]int{previous.number, next.number})
	}
	if ctx.Err() != nil {
		return ctx.Err() // the next agent finds what there is
	}
	u.log.Error("the next envoy did not take over", "unit", u.launch.name(next.number), "error", failed)
	// Not by SIGTERM: an Envoy that is taking over would end the previous one too.
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

// waitAlone waits until an epoch has ended the one that it replaced. An Envoy that is replaced
// before that does so at once, which cuts requests; when that one has ended by itself, it aborts.
// Source: Envoy, HotRestartingChild::sendParentTerminateRequest, and tried.
func (u *units) waitAlone(ctx context.Context, e epoch) error {
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
			u.change(func(s *envoyState) { s.Waiting = why })
		}
		u.change(func(s *envoyState) { s.PID = now.PID })
		if !sleep(ctx, unitPoll) {
			return ctx.Err()
		}
	}
	return nil
}

// takeOver starts an epoch and waits until it serves.
func (u *units) takeOver(ctx context.Context, e epoch) error {
	if err := u.launch.write(e); err != nil {
		return err
	}
	if err := u.manager.Start(ctx, u.launch.name(e.number)); err != nil {
		return fmt.Errorf("start %s: %w", u.launch.name(e.number), err)
	}
	return u.waitServing(ctx, e.number)
}

// waitServing waits until the Envoy of an epoch that is starting serves. Errors: it ended, or takes
// too long.
func (u *units) waitServing(ctx context.Context, number int) error {
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
		if !sleep(ctx, takeoverPoll) {
			return fmt.Errorf("%s does not serve within %s", name, takeoverTimeout)
		}
	}
	return nil
}

// watch follows the current unit until it does not run any more; the error says how it ended.
func (u *units) watch(ctx context.Context) error {
	name, pid := u.launch.name(u.current.number), 0
	for {
		now, err := u.manager.Look(ctx, name)
		if err != nil { // Envoy may run all the same
			u.log.Warn("systemd does not answer", "unit", name, "error", err)
			if !sleep(ctx, unitPoll) {
				return ctx.Err()
			}
			continue
		}
		if !now.running() {
			return fmt.Errorf("%s is %s (%s); see \"journalctl -u %s\"", name, now.Active, now.Result, name)
		}
		u.change(func(s *envoyState) {
			s.PID, s.Trouble = now.PID, ""
			if now.PID == 0 {
				s.Trouble = fmt.Sprintf("%s ended (%s), and systemd starts it again; see \"journalctl -u %s\"", name,
					now.Result, name)
			} else if pid != 0 && now.PID != pid {
				s.Runs++
			}
		})
		if pid != 0 && now.PID != 0 && now.PID != pid {
			u.log.Error("envoy ended unexpectedly, and systemd started it again", "unit", name)
			poke(u.ended)
		}
		pid = cmp.Or(now.PID, pid)
		if !sleep(ctx, unitPoll) {
			return ctx.Err()
		}
	}
}

// Stop implements envoyRunner.
func (u *units) Stop(ctx context.Context) error {
	select {
	case <-u.unwatched:
	case <-ctx.Done():
		return ctx.Err()
	}
	return u.stop(ctx)
}

// stop ends all epochs, the newest first: an Envoy ends the one that it replaced, and aborts when
// that has gone.
func (u *units) stop(ctx context.Context) error {
	active, err := u.active(ctx)
	errs := []error{err}
	for _, n := range slices.Backward(active) {
		if err := u.manager.Stop(ctx, u.launch.name(n)); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", u.launch.name(n), err))
		}
	}
	return errors.Join(append(errs, u.launch.clean(nil))...)
}
