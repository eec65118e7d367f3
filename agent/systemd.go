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

// systemd is the system's service manager, asked over the system bus. What the agent may start and stop is decided by polkit.
type systemd struct {
	mu   sync.Mutex
	conn *dbus.Conn // guarded by mu; nil: not connected
}

var _ unitManager = (*systemd)(nil)

// connect returns the connection to the bus, a new one when the last has ended.
func (m *systemd) connect(ctx context.Context) (*dbus.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil && m.conn.Connected() {
		return m.conn, nil
	}
	if m.conn != nil {
		m.conn.Close()
	}
	// The connection lives as long as its context.
	conn, err := dbus.NewSystemConnectionContext(context.WithoutCancel(ctx))
	if err != nil {
		return nil, fmt.Errorf("connect to systemd (setting envoy.unit needs its D-Bus): %w", err)
	}
	m.conn = conn
	return conn, nil
}

// List implements unitManager.
func (m *systemd) List(ctx context.Context, pattern string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	conn, err := m.connect(ctx)
	if err != nil {
		return nil, err
	}
	found, err := conn.ListUnitsByPatternsContext(ctx, []string{"active", "reloading", "activating", "deactivating"}, []string{pattern})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, u := range found {
		out = append(out, u.Name)
	}
	return out, nil
}

// Look implements unitManager.
func (m *systemd) Look(ctx context.Context, name string) (unitState, error) {
	var out unitState
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	conn, err := m.connect(ctx)
	if err != nil {
		return out, err
	}
	active, err := conn.GetUnitPropertyContext(ctx, name, "ActiveState")
	if err != nil {
		return out, err
	}
	result, err := conn.GetUnitTypePropertyContext(ctx, name, "Service", "Result")
	if err != nil {
		return out, err
	}
	pid, err := conn.GetUnitTypePropertyContext(ctx, name, "Service", "MainPID")
	if err != nil {
		return out, err
	}
	n, ok := pid.Value.Value().(uint32)
	if !ok {
		return out, fmt.Errorf("MainPID is %v", pid.Value)
	}
	out.PID = int(n)
	out.Active, _ = active.Value.Value().(string)
	out.Result, _ = result.Value.Value().(string)
	return out, nil
}

// Start implements unitManager.
func (m *systemd) Start(ctx context.Context, name string) error {
	return m.job(ctx, name, (*dbus.Conn).StartUnitContext)
}

// Stop implements unitManager.
func (m *systemd) Stop(ctx context.Context, name string) error {
	return m.job(ctx, name, (*dbus.Conn).StopUnitContext)
}

// job has systemd do something with a unit and waits until it is done.
func (m *systemd) job(ctx context.Context, name string, do func(*dbus.Conn, context.Context, string, string, chan<- string) (int, error)) error {
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	conn, err := m.connect(ctx)
	if err != nil {
		return err
	}
	done := make(chan string, 1)
	if _, err := do(conn, ctx, name, "replace", done); err != nil {
		return err
	}
	select {
	case result := <-done:
		if result != "done" {
			return errors.New("systemd says " + result)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill implements unitManager.
func (m *systemd) Kill(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	state, err := m.Look(ctx, name)
	if err != nil || state.PID == 0 {
		return err
	}
	conn, err := m.connect(ctx)
	if err != nil {
		return err
	}
	return conn.KillUnitWithTarget(ctx, name, dbus.All, int32(syscall.SIGKILL))
}

// Stopping implements unitManager.
func (m *systemd) Stopping(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	conn, err := m.connect(ctx)
	if err != nil {
		return false, err
	}
	state, err := conn.SystemStateContext(ctx)
	if err != nil {
		return false, err
	}
	return state.Value.Value() == "stopping", nil
}
