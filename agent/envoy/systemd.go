package envoy

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

// Systemd is the system's service manager, over D-Bus. polkit decides which units the agent may
// start and stop.
type Systemd struct {
	mu   sync.Mutex
	conn *dbus.Conn // guarded by mu; nil: not connected
}

var _ Manager = (*Systemd)(nil)

// call calls f with a connection to the bus. It reconnects if the last one has ended.
func (m *Systemd) call(ctx context.Context, f func(ctx context.Context, bus *dbus.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	bus, err := m.connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd over D-Bus: %w", err)
	}
	return f(ctx, bus)
}

func (m *Systemd) connect(ctx context.Context) (_ *dbus.Conn, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil && m.conn.Connected() {
		return m.conn, nil
	}
	if m.conn != nil {
		m.conn.Close()
	}
	// The connection lives as long as its context.
	m.conn, err = dbus.NewSystemConnectionContext(context.WithoutCancel(ctx))
	return m.conn, err
}

// List implements Manager.
func (m *Systemd) List(ctx context.Context, pattern string) (out []string, err error) {
	err = m.call(ctx, func(ctx context.Context, bus *dbus.Conn) error {
		found, err := bus.ListUnitsByPatternsContext(ctx,
			[]string{"active", "reloading", "activating", "deactivating"}, []string{pattern})
		for _, u := range found {
			out = append(out, u.Name)
		}
		return err
	})
	return out, err
}

// Look implements Manager. A unit that is not a service has no process and no result.
func (m *Systemd) Look(ctx context.Context, name string) (s UnitState, err error) {
	err = m.call(ctx, func(ctx context.Context, bus *dbus.Conn) error {
		all, err := bus.GetAllPropertiesContext(ctx, name)
		pid, _ := all["MainPID"].(uint32)
		s.PID = int(pid)
		s.Active, _ = all["ActiveState"].(string)
		s.Result, _ = all["Result"].(string)
		return err
	})
	return s, err
}

// Start implements Manager.
func (m *Systemd) Start(ctx context.Context, name string) error {
	return m.job(ctx, name, (*dbus.Conn).StartUnitContext)
}

// Stop implements Manager.
func (m *Systemd) Stop(ctx context.Context, name string) error {
	return m.job(ctx, name, (*dbus.Conn).StopUnitContext)
}

// job runs a job of a unit and waits for its end.
func (m *Systemd) job(ctx context.Context, name string,
	start func(*dbus.Conn, context.Context, string, string, chan<- string) (int, error)) error {
	return m.call(ctx, func(ctx context.Context, bus *dbus.Conn) error {
		done := make(chan string, 1)
		if _, err := start(bus, ctx, name, "replace", done); err != nil {
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
	})
}

// Kill implements Manager.
func (m *Systemd) Kill(ctx context.Context, name string) error {
	state, err := m.Look(ctx, name)
	if err != nil || state.PID == 0 {
		return err
	}
	return m.call(ctx, func(ctx context.Context, bus *dbus.Conn) error {
		return bus.KillUnitWithTarget(ctx, name, dbus.All, int32(syscall.SIGKILL))
	})
}

// Stopping implements Manager.
func (m *Systemd) Stopping(ctx context.Context) (stopping bool, err error) {
	err = m.call(ctx, func(ctx context.Context, bus *dbus.Conn) error {
		state, err := bus.SystemStateContext(ctx)
		if err == nil {
			stopping = state.Value.Value() == "stopping"
		}
		return err
	})
	return stopping, err
}
