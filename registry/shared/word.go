package shared

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashore-mesh/ashore/registry"
)

// word is what a stream of this replica said last of a workload. It is kept while the stream lives, and until it is written.
// Guarded by Runtime.mu.
type word struct {
	// session is the stream that said it; empty: it is about a workload whose proxy has gone.
	session string
	// says is the registration as it is to be; nil: there is to be none.
	says *registry.Registration
	// reported says that the health of says is this session's own, not that of an earlier one.
	reported bool
	// pending says that the records do not have it, or nobody knows whether they do.
	pending bool
	// written says that the session has stood in the records.
	written bool
	// failed says that the store could not take it at first, and over is the version of the record that it replaces: who has
	// written since came later.
	failed bool
	over   string
}

// live says that the stream is there still, as far as this replica knows.
func (w *word) live() bool { return w.says != nil && w.says.Session != "" }

// replaces says whether the word may be written in the place of what the records have.
func (w *word) replaces(k kept) bool {
	switch {
	case k.registration == nil || k.registration.Session == w.session:
		return true
	case w.written:
		return w.says == nil && k.registration.Session == ""
	}
	return !w.failed || k.version == w.over || k.registration.Session == ""
}

// Connect implements registry.Runtime. It does not wait.
func (r *Runtime) Connect(_ context.Context, reg registry.Registration) error {
	if err := reg.CheckSize(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now().Round(0)
	reg.Replica, reg.ConnectedAt, reg.DisconnectedAt, reg.Lease = r.cfg.Replica, now, time.Time{}, time.Time{}
	reg.Created, reg.Health = now, registry.Report{}
	says := inherit(&reg, r.all.At(reg.RegistrationKey))
	r.speak(reg.RegistrationKey, &word{session: reg.Session, says: says, over: r.version(reg.RegistrationKey)})
	return nil
}

// inherit is reg with when the workload registered first and how it was, if that is known; another identity inherits nothing.
func inherit(reg, from *registry.Registration) *registry.Registration {
	if from == nil || from.Identity != reg.Identity || from.Created.Equal(reg.Created) && from.Health == reg.Health {
		return reg
	}
	heir := *reg
	heir.Created, heir.Health = from.Created, from.Health
	return &heir
}

// Report implements registry.Runtime. What was reported before is no change.
func (r *Runtime) Report(_ context.Context, key registry.RegistrationKey, session string, h registry.Report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, err := r.speaker(key, session)
	if w == nil || w.says == nil {
		return err
	}
	w.reported = true
	if w.says.Health.Same(h) {
		return err
	}
	h.At = h.At.Round(0)
	says := *w.says
	says.Health, w.says = h, &says
	if err == nil {
		r.speak(key, w)
	}
	return err
}

// Disconnect implements registry.Runtime.
func (r *Runtime) Disconnect(_ context.Context, key registry.RegistrationKey, session string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, err := r.speaker(key, session)
	if err != nil {
		r.silence(key, w)
		return err
	}
	says := *w.says
	says.DisconnectedAt, says.Session = time.Now().Round(0), ""
	w.says = &says
	r.speak(key, w)
	return nil
}

// Remove implements registry.Runtime.
func (r *Runtime) Remove(_ context.Context, key registry.RegistrationKey, session string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, err := r.speaker(key, session)
	if err != nil {
		r.silence(key, w)
		return err
	}
	w.says = nil
	r.speak(key, w)
	return nil
}

// speaker is the word of a session that speaks for a workload. Errors: ErrSession, with the word of a session that another
// one took the place of, if it is of this replica; else nil. mu is held.
func (r *Runtime) speaker(key registry.RegistrationKey, session string) (*word, error) {
	now, w := r.all.At(key), r.own[key]
	if now == nil || now.Session != session {
		if w == nil || w.session != session || session == "" {
			w = nil
		}
		return w, registry.ErrSession
	}
	if w == nil || w.session != session && (session != "" || w.live()) {
		w = &word{session: session, says: now, written: true}
	}
	return w, nil
}

// silence forgets the word of a session that has ended and speaks for nobody. mu is held.
func (r *Runtime) silence(key registry.RegistrationKey, w *word) {
	if w != nil && r.own[key] == w {
		delete(r.own, key)
		delete(r.unsaid, key)
		r.settle(key)
	}
}

// speak has a word count here, and Run write it. mu is held.
func (r *Runtime) speak(key registry.RegistrationKey, w *word) {
	r.own[key] = w
	r.pend(key, w)
	r.settle(key)
}

// pend has Run write a word of own. mu is held.
func (r *Runtime) pend(key registry.RegistrationKey, w *word) {
	w.pending = true
	r.unsaid[key] = w
	leaveWord(r.said)
}

// fail notes that the store takes nothing, and why.
func (r *Runtime) fail(doing string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.unsaid {
		w.failed = true
	}
	if r.trouble.text == "" && !errors.Is(err, context.Canceled) {
		r.cfg.Log.Error("registrations are not shared with the other replicas: what the proxies of this one say counts here alone until the store is back", "doing", doing, "error", err)
		r.trouble.since = time.Now()
	}
	r.trouble.text = fmt.Sprintf("%s: %v", doing, err)
}

// recovered notes that the store takes what is written.
func (r *Runtime) recovered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trouble.text != "" {
		r.cfg.Log.Info("registrations are shared again", "after", time.Since(r.trouble.since).Round(time.Millisecond))
	}
	r.trouble = trouble{}
}
