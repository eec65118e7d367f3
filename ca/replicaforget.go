package ca

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// ErrForgetReplica is why a replica is not forgotten: it is the caller's fault.
var ErrForgetReplica = errors.New("cannot forget the replica")

// ReplicaID is what the records call this replica; empty: it is not one of several, or not
// self-signed.
func (m *Manager) ReplicaID() string {
	if m.own == nil || m.own.replica == nil {
		return ""
	}
	return m.own.replica.id // set by start
}

// ForgetReplica takes the record of another replica out of the records: nobody waits for it any
// more. What it has signed with stays valid, and one that is there all the same is listed again. It
// is called by its ID, its name, its machine or its address. Errors: ErrNotFound, ErrForgetReplica
// while it serves, or when several are called so, of which the one that is asked may be one.
func (m *Manager) ForgetReplica(ctx context.Context, what, reason, by string) (ReplicaStatus, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x, err := m.forget(ctx, what)
	m.config.Audit(forgotten(x, what, reason, by, err))
	return x, err
}

// forget deletes the record of the replica that is called so. With an error it returns whom it
// found. The caller holds mu.
func (m *Manager) forget(ctx context.Context, what string) (ReplicaStatus, error) {
	if m.own == nil || m.own.replica == nil {
		return ReplicaStatus{}, fmt.Errorf("%w: this ashored knows of no others: replicas share a store (setting store, kind consul) and an authority that is not plugged in", ErrForgetReplica)
	}
	return m.own.forgetByHand(ctx, what, m.config.Now())
}

// forgotten tells the audit log that somebody wished to forget a replica. err is why it was not; x
// is then whom was found, if anybody.
func forgotten(x ReplicaStatus, what, reason, by string, err error) audit.Event {
	e := audit.Event{Action: audit.ReplicaForget, Actor: by, Target: x.Name, Reason: reason,
		Details: map[string]string{}}
	if x.ID != "" {
		e.Details["id"], e.Details["state"] = x.ID, string(x.State)
	} else {
		e.Target = fmt.Sprintf("%.200s", what)
	}
	if err == nil {
		return e
	}
	e.Outcome, e.Reason = audit.Failed, strings.TrimPrefix(reason+": "+err.Error(), ": ")
	if errors.Is(err, ErrForgetReplica) || errors.Is(err, ErrNotFound) {
		e.Outcome = audit.Refused
	}
	return e
}

// forgetByHand deletes the record of the replica that is called so. With an error it returns whom
// it found.
func (s *selfSigned) forgetByHand(ctx context.Context, what string, now time.Time) (ReplicaStatus, error) {
	if err := s.readReplicas(ctx); err != nil {
		return ReplicaStatus{}, err
	}
	m := s.replica
	ids, own := m.called(what), called(what, m.id, m.name)
	switch {
	case own && len(ids) == 0:
		return ReplicaStatus{}, fmt.Errorf("%w: %s is the one that was asked", ErrForgetReplica, m.name)
	case own:
		return ReplicaStatus{}, fmt.Errorf("%w: the one that was asked is called %.200q too: name the other one by its ID, %s", ErrForgetReplica, what, strings.Join(ids, " or "))
	case len(ids) == 0:
		return ReplicaStatus{}, fmt.Errorf("replica %.200q: %w: \"ashorectl ca show\" lists those that there are", what,
			ErrNotFound)
	case len(ids) > 1:
		return ReplicaStatus{}, fmt.Errorf("%w: several are called %.200q: name one by its ID, %s", ErrForgetReplica,
			what, strings.Join(ids, " or "))
	}
	x := m.statusOf(ids[0], m.others[ids[0]], s.bundle.Roots, now)
	if x.State == ReplicaServing {
		return x, s.replica.unforgettable(x, now)
	}
	key := record.Key{Table: table, Name: replicaRecords + x.ID}
	if err := s.records.records.Commit(ctx, record.Write{Key: key, Version: m.versions[x.ID]}); errors.Is(err,
		record.ErrConflict) {
		return x, fmt.Errorf("%w: it wrote its record at this moment, so it is there: %w", ErrForgetReplica, err)
	} else if err != nil {
		return x, err
	}
	delete(m.others, x.ID)
	s.log.Info("a replica is forgotten, as an operator wished", "replica", x.Name, "id", x.ID, "state", x.State)
	return x, nil
}

// unforgettable is why one that serves is not forgotten.
func (m *membership) unforgettable(x ReplicaStatus, now time.Time) error {
	if _, heard := m.serves(x.ID, m.others[x.ID], now); heard {
		return fmt.Errorf("%w: %s is alive and serves: stop it first", ErrForgetReplica, x.Name)
	}
	return fmt.Errorf("%w: %s has an older release, which does not tell others that it is there, and it may serve until its intermediate ends at %s: upgrade it; if it is gone, it is forgotten after that, and --force has a rotation not wait for it",
		ErrForgetReplica, x.Name, m.others[x.ID].ends().UTC().Format(time.RFC3339))
}

// called are the others that are called so, by their ids.
func (m *membership) called(what string) []string {
	var ids []string
	for id, r := range m.others {
		if called(what, id, r.Name) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// called says whether a replica is called so: "web-1 (10.0.0.1:15012)" is also called "web-1",
// "10.0.0.1:15012" and "10.0.0.1".
func called(what, id, name string) bool {
	machine, address, _ := strings.Cut(name, " (")
	address = strings.TrimSuffix(address, ")")
	host, _, _ := net.SplitHostPort(address) // without a port: empty
	return what != "" && slices.Contains([]string{id, name, machine, address, host}, what)
}
