package ca

import (
	"context"
	"errors"
	"time"
)

// How often the authority is looked after: files that are replaced are seen within pluggedPace, a
// rotation is led on at rotatingPace, and what is to be renewed is seen within idlePace.
const (
	pluggedPace  = time.Second
	rotatingPace = 5 * time.Second
	idlePace     = 5 * time.Minute
)

// Run takes plugged-in files that are replaced, renews what signs and the control plane's
// certificate, and leads a rotation on, until ctx ends. What fails is logged, shown, and tried
// again; what was current stays so.
func (m *Manager) Run(ctx context.Context) error {
	changed := m.config.Records.Watch(ctx, table)
	for {
		timer := time.NewTimer(m.look(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// look does what is to be done now, and returns after how long to look again.
func (m *Manager) look(ctx context.Context) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.refresh(ctx, m.config.Now())
	m.note(ctx, err)
	switch {
	case m.own == nil:
		return pluggedPace
	case m.own.state.Step != None || err != nil:
		return rotatingPace
	}
	return idlePace
}

// refresh has the authority look after itself, and makes what it has now current. The caller holds
// mu.
func (m *Manager) refresh(ctx context.Context, now time.Time) error {
	return errors.Join(m.authority.look(ctx, now), m.publish(now))
}

// note remembers why a look failed, and logs it once. The caller holds mu.
func (m *Manager) note(ctx context.Context, err error) {
	text := ""
	if err != nil && ctx.Err() == nil {
		text = err.Error()
		if text != m.trouble {
			m.config.Log.Error("the certificate authority goes on with what it has", "error", err)
		}
	}
	m.trouble = text
}
