package ca

import (
	"context"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
)

// How often the authority is looked after: files that are replaced are seen within pluggedPace, a
// rotation is led on at rotatingPace or slower, and at idlePace it is seen whether something is to
// be renewed.
const (
	pluggedPace  = time.Second
	rotatingPace = 2 * time.Second
	idlePace     = 5 * time.Minute
)

// Run takes plugged-in files that are replaced, renews what signs and the control plane's
// certificate, and leads a rotation on, until ctx ends. What fails is logged, shown, and tried
// again; what was current stays so.
func (m *Manager) Run(ctx context.Context) error {
	changed := m.config.Records.Watch(ctx, table)
	for {
		again := m.look(ctx)
		timer := time.NewTimer(again)
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

// look does what is to be done now, and returns after how long to look again. What the records are
// only told now and then they are told when mu is free again: a store that hangs then keeps nobody
// waiting.
func (m *Manager) look(ctx context.Context) time.Duration {
	pace, unsaid := m.lookNow(ctx)
	stateStore{m.config.Records}.sayHere(ctx, unsaid, m.config.Log)
	return pace
}

// lookNow does what is to be done now, and returns after how long to look again, and what is to be
// written without mu; nil: nothing.
func (m *Manager) lookNow(ctx context.Context) (time.Duration, *record.Write) {
	m.mu.Lock()
	defer m.mu.Unlock()
	began, now := time.Now(), m.config.Now()
	var err error
	pace, unsaid := pluggedPace, (*record.Write)(nil)
	if m.plugged != nil {
		err = m.lookPlugged(ctx, now)
	} else {
		err = m.lookOwn(ctx, now)
		pace = idlePace
		if m.own.state.Step != None || err != nil {
			pace = paceAfter(time.Since(began))
		} else if r := m.own.replica; r != nil && r.trouble != "" {
			pace = rewriteGap
		}
		if r := m.own.replica; r != nil {
			unsaid = r.unsaid
		}
	}
	m.note(ctx, err)
	return pace, unsaid
}

// paceAfter is the pace of a rotation whose looks take so long: they are a hundredth of the time at
// most, up to a minute's pace.
func paceAfter(took time.Duration) time.Duration {
	return max(rotatingPace, min(100*took, time.Minute))
}

// lookPlugged takes a set that was put in place. The caller holds mu.
func (m *Manager) lookPlugged(ctx context.Context, now time.Time) error {
	took, err := m.plugged.look(ctx, now)
	if err != nil {
		return err
	}
	if err := m.publish(now); err != nil {
		return err
	}
	if took {
		m.warnStranded(ctx, now)
	}
	return nil
}

// lookOwn renews, and leads a rotation on as far as it goes. The caller holds mu.
func (m *Manager) lookOwn(ctx context.Context, now time.Time) error {
	for {
		if err := m.refreshOwn(ctx, now); err != nil || m.own.state.Step == None {
			return err
		}
		facts, err := m.config.Facts(ctx)
		if err != nil {
			return err
		}
		if done, err := m.own.advance(ctx, facts, now); err != nil || !done {
			return err
		}
	}
}

// refreshOwn has what is current be what records and files say. The caller holds mu.
func (m *Manager) refreshOwn(ctx context.Context, now time.Time) error {
	if err := m.own.refresh(ctx, now); err != nil {
		m.distrust()
		return err
	}
	return m.publish(now)
}

// distrust has whom the records trust be current even where this replica cannot sign below any of
// them: what it signed nobody would believe. The caller holds mu.
func (m *Manager) distrust() {
	was := m.view.Load()
	if was == nil || m.own.bundle == was.bundle {
		return
	}
	m.view.Store(&view{signer: was.signer, bundle: m.own.bundle, server: was.server, former: was.former})
	m.tell()
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

// warnStranded tells of workloads that a change of authority leaves behind. The caller holds mu.
func (m *Manager) warnStranded(ctx context.Context, now time.Time) {
	facts, err := m.config.Facts(ctx)
	if err != nil {
		m.config.Log.Warn("nobody knows whether workloads are stranded", "error", err)
		return
	}
	problems := m.own.problems
	if m.plugged != nil {
		problems = m.plugged.problems
	}
	for _, text := range problems(facts, now) {
		m.config.Log.Error("workloads are left behind", "text", text)
	}
}
