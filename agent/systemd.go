package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
)

// systemdTimeout bounds one call to systemd.
const systemdTimeout = 30 * time.Second

// systemd is a client of the system's service manager, over D-Bus. polkit decides what the agent
// may start and stop.
type systemd struct {
	mu   sync.Mutex
	conn *dbus.Conn // guarded by mu; nil: not connected
}

var _ unitManager = (*systemd)(nil)

// connect returns the connection to the bus, a new one when the last has ended. Calls with ctx are
// bounded until cancel.
func (m *systemd) connect(parent context.Context) (conn *dbus.Conn, ctx context.Context, cancel context.CancelFunc,
	err error) {
	ctx, cancel = context.WithTimeout(parent, systemdTimeout)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil && m.conn.Connected() {
		return m.conn, ctx, cancel, nil
	}
	if m.conn != nil {
		m.conn.Close()
	}
	// The connection lives as long as its context.
	if m.conn, err = dbus.NewSystemConnectionContext(context.WithoutCancel(ctx)); err != nil {
		cancel()
		return nil, nil, nil, fmt.Errorf("connect to systemd over D-Bus: %w", err)
	}
	return m.conn, ctx, cancel, nil
}

// List implements unitManager.
func (m *systemd) List(ctx context.Context, pattern string) ([]string, error) {
	conn, ctx, cancel, err := m.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	found, err := conn.ListUnitsByPatternsContext(ctx, []string{"active", "reloading", "activating", "deactivating"},
		[]string{pattern})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, u := range found {
		out = append(out, u.Name)
	}
	return out, nil
}

// Look implements unitManager. A unit that is not a service has no process and no result.
func (m *systemd) Look(ctx context.Context, name string) (unitState, error) {
	conn, ctx, cancel, err := m.connect(ctx)
	if err != nil {
		return unitState{}, err
	}
	defer cancel()
	all, err := conn.GetAllPropertiesContext(ctx, name)
	if err != nil {
		return unitState{}, err
	}
	pid, _ := all["MainPID"].(uint32)
	active, _ := all["ActiveState"].(string)
	result, _ := all["Result"].(string)
	return unitState{PID: int(pid), Active: active, Result: result}, nil
}

// unitActive returns why a unit is not active. Units that reload their settings are. Source:
// systemctl(1), is-active. Not known: systemd does not answer.
func (m *systemd) unitActive(ctx context.Context, name string) (why error, known bool) {
	state, err := m.Look(ctx, name)
	if err != nil {
		return fmt.Errorf("look at the unit %s: %w", plain(name), err), false
	}
	if state.Active != "active" && state.Active != "reloading" {
		return fmt.Errorf("the unit %s is %s", plain(name), state.Active), true
	}
	return nil, true
}

// Start implements unitManager.
func (m *systemd) Start(ctx context.Context, name string) error {
	return m.job(ctx, name, (*dbus.Conn).StartUnitContext)
}

// Stop implements unitManager.
func (m *systemd) Stop(ctx context.Context, name string) error {
	return m.job(ctx, name, (*dbus.Conn).StopUnitContext)
}

// job starts a job for a unit and waits until it is done.
func (m *systemd) job(ctx context.Context, name string,
	start func(*dbus.Conn, context.Context, string, string, chan<- string) (int, error)) error {
	conn, ctx, cancel, err := m.connect(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	done := make(chan string, 1)
	if _, err := start(conn, ctx, name, "replace", done); err != nil {
		return err
	}
	select {
	case result := <-done:
		if result != "done" {
			return errors.New("systemd reports " + result)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill implements unitManager.
func (m *systemd) Kill(ctx context.Context, name string) error {
	state, err := m.Look(ctx, name)
	if err != nil || state.PID == 0 {
		return err
	}
	conn, ctx, cancel, err := m.connect(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	return conn.KillUnitWithTarget(ctx, name, dbus.All, int32(syscall.SIGKILL))
}

// Stopping implements unitManager.
func (m *systemd) Stopping(ctx context.Context) (bool, error) {
	conn, ctx, cancel, err := m.connect(ctx)
	if err != nil {
		return false, err
	}
	defer cancel()
	state, err := conn.SystemStateContext(ctx)
	if err != nil {
		return false, err
	}
	return state.Value.Value() == "stopping", nil
}
