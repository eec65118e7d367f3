package xds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// NotJoinedError means that a verified certificate may not register: its key is not the current one
// of its workload.
type NotJoinedError struct {
	// Public is the message for its holder; may be empty.
	Public string
	// Err has the details, for the log.
	Err error
}

func (e *NotJoinedError) Error() string {
	return fmt.Sprintf("the certificate does not have the current key of its workload: %v", e.Err)
}

// Unwrap is the cause.
func (e *NotJoinedError) Unwrap() error { return e.Err }

// mayRegister returns the WorkloadGroup or WorkloadEntry that the stream asks to register with.
// Errors: it does not exist, or is of another namespace or service account than the certificate.
func (st *stream) mayRegister(ctx context.Context) (target *config.Object, err error) {
	s, ask := st.server, st.proxy.registration
	kind, name := config.WorkloadGroup, ask.group
	if name == "" {
		kind, name = config.WorkloadEntry, ask.entry
	}
	if st.who.Identity == (spiffe.ID{}) && !s.cfg.RegisterAnybody {
		return nil, status.Errorf(codes.PermissionDenied,
			"a workload registers with an identity: connect with mutual TLS, or start without %s", kind)
	}
	o := s.current.Load().context.Object(config.Key{Kind: kind, Namespace: st.proxy.Namespace, Name: name})
	if o == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "cannot find %s %s/%s", kind, st.proxy.Namespace, name)
	}
	id, account := st.who.Identity, entry.AccountOf(o)
	if id != (spiffe.ID{}) && account != (entry.Account{Namespace: id.Namespace, Name: id.ServiceAccount}) {
		return nil, status.Errorf(codes.PermissionDenied,
			"%s %s/%s is of service account %q, the certificate is of %s", kind, o.Namespace, o.Name, account.Name, id)
	}
	return o, st.joined(ctx)
}

// joined returns an error if the stream's certificate is not the current one of its workload, or if
// the workload joined another group.
func (st *stream) joined(ctx context.Context) error {
	s, ask := st.server, st.proxy.registration
	if s.cfg.Joined == nil || st.who.chain == nil {
		return nil
	}
	group, err := s.cfg.Joined(ctx, st.who.chain[0])
	out, not := errors.AsType[*NotJoinedError](err)
	switch {
	case not:
		st.logLine(hclog.Warn, "workload does not register", "proxy", st.proxy.ID, "identity", st.who.Identity,
			"serial", st.who.Serial, "error", err)
		return status.Error(codes.PermissionDenied, cmp.Or(out.Public,
			"the certificate may not register: it was replaced, or is not from a join here"))
	case err != nil:
		st.logLine(hclog.Error, "the workload of a certificate could not be looked up", "proxy", st.proxy.ID,
			"serial", st.who.Serial, "error", err)
		return status.Error(codes.Unavailable, "the workload could not be looked up: try another replica")
	case group != "" && ask.group != "" && group != st.proxy.Namespace+"/"+ask.group:
		return status.Errorf(codes.PermissionDenied,
			"the workload joined WorkloadGroup %s and cannot register as one of %s/%s",
			group, st.proxy.Namespace, ask.group)
	}
	return nil
}

// mayBegin returns an error if the workload may not be registered as r: because of its address or
// of too many registrations. target is its WorkloadGroup, or the WorkloadEntry that it reports for.
func (st *stream) mayBegin(target *config.Object, r *registry.Registration) error {
	from, current := hostOf(st.peer), st.server.current.Load().context
	if r.Identity == "" { // in development
		return checkAddress(nil, r.Addresses[0], from)
	}
	var c claim        // conflicts with none
	if r.Group != "" { // otherwise its WorkloadEntry uses the address
		if err := checkAddress(target, r.Addresses[0], from); err != nil {
			return err
		}
		c = registeredClaim(r, target)
		for o := range current.WorkloadEntriesAt(c.address) {
			if err := c.conflict(declaredClaim(o, c.address)); err != nil {
				return err
			}
		}
	}
	all, n := st.server.cfg.Runtime.Registrations(), 0
	if old, ok := all.Get(r.RegistrationKey); ok && old.Identity == r.Identity && old.Workload == r.Workload {
		return nil // it comes back
	}
	var conflict error
	for key, other := range all.All() {
		if key == r.RegistrationKey {
			continue
		}
		if other.Workload == r.Workload {
			n++
		}
		if conflict == nil && other.Addresses[0] == c.address && other.Group != "" && other.Identity != "" {
			group := config.Key{Kind: config.WorkloadGroup, Namespace: other.Namespace, Name: other.Group}
			conflict = c.conflict(registeredClaim(other, current.Object(group)))
		}
	}
	if n >= maxRegistrations {
		return status.Errorf(codes.ResourceExhausted,
			"workload %s cannot register %s: it has %d registrations already, and more are not allowed; "+
				"stop agents that use its identity (ashorectl get workloadentries shows their addresses)",
			r.Workload, r.Addresses[0], n)
	}
	return conflict
}

// refuseRegistration counts and records that the stream may not register.
func (st *stream) refuseRegistration(err error) {
	st.server.metrics.refused.WithLabelValues("not registered").Inc()
	ask := st.proxy.registration
	st.audit(audit.RegistrationRefuse, st.proxy.Namespace+"/"+cmp.Or(ask.group, ask.entry), audit.Refused,
		status.Convert(err).Message())
}

// audit records what the stream's peer did, at a limited rate for each peer and action.
func (st *stream) audit(action, target, outcome, reason string) {
	s, who := st.server, cmp.Or(st.who.Identity.String(), hostOf(st.peer).String())
	record, silent := s.audits.Allow(action+" "+who, time.Now())
	if !record || s.cfg.Audit == nil {
		return
	}
	e := audit.Event{Action: action, Actor: who, Target: target, Outcome: outcome, Reason: reason,
		Details: map[string]string{"peer": st.peer, "serial": st.who.Serial}}
	if st.proxy != nil {
		e.Details["node"] = st.proxy.ID
	}
	if silent > 0 {
		e.Details["unwritten"] = strconv.Itoa(silent)
	}
	s.cfg.Audit(e)
}
