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

// NotJoinedError is why a certificate that is believed registers nobody: its key is not the one
// that its workload has now.
type NotJoinedError struct {
	// Public is what its holder is told; empty: no more than that.
	Public string
	// Err is all that is known.
	Err error
}

func (e *NotJoinedError) Error() string {
	return fmt.Sprintf("the certificate is not of the key that its workload has now: %v", e.Err)
}

// Unwrap is the cause.
func (e *NotJoinedError) Unwrap() error { return e.Err }

// mayRegister says whether the stream may register what it asks for: the target has to be there, in
// the namespace and of the service account that the stream has proven to be of. It returns the
// target.
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

// joined says whether the stream's certificate is that of a workload as it is now, and of the group
// that it joined.
func (st *stream) joined(ctx context.Context) error {
	s, ask := st.server, st.proxy.registration
	if s.cfg.Joined == nil || st.who.Leaf() == nil {
		return nil
	}
	group, err := s.cfg.Joined(ctx, st.who.Leaf())
	out, not := errors.AsType[*NotJoinedError](err)
	switch {
	case not:
		st.logLine(hclog.Warn, "workload does not register", "proxy", st.proxy.ID, "identity", st.who.Identity,
			"serial", st.who.Serial, "error", err)
		return status.Error(codes.PermissionDenied, cmp.Or(out.Public,
			"the certificate registers nobody: it was replaced, or is not from a join here"))
	case err != nil:
		st.logLine(hclog.Error, "nobody knows whose a certificate is", "proxy", st.proxy.ID, "serial", st.who.Serial,
			"error", err)
		return status.Error(codes.Unavailable, "the workload could not be looked up: try another replica")
	case group != "" && ask.group != "" && group != st.proxy.Namespace+"/"+ask.group:
		return status.Errorf(codes.PermissionDenied,
			"the workload joined WorkloadGroup %s and cannot register as one of %s/%s", group, st.proxy.Namespace, ask.group)
	}
	return nil
}

// mayBegin returns an error if the workload may not be registered as r: because of its address or
// of too many registrations. target is its WorkloadGroup, or the WorkloadEntry that it reports for.
func (st *stream) mayBegin(target *config.Object, r *registry.Registration) error {
	from := hostOf(st.peer)
	if r.Identity == "" { // in development
		return checkAddress(nil, r.Addresses[0], from)
	}
	s, current := st.server, st.server.current.Load().context
	var c claim
	if r.Group != "" { // otherwise its WorkloadEntry uses the address
		if err := checkAddress(target, r.Addresses[0], from); err != nil {
			return err
		}
		c = registeredClaim(r, target)
		if err := c.conflictDeclared(current); err != nil {
			return err
		}
	}
	all := s.cfg.Runtime.Registrations()
	if old, ok := all.Get(r.RegistrationKey); ok && old.Identity == r.Identity && old.Workload == r.Workload {
		return nil
	}
	return s.mayAdd(r, c, current, all)
}

// mayAdd returns an error if the workload of r has too many registrations or adds them too fast, or
// if another registration conflicts with its claim c. The zero claim conflicts with none.
func (s *Server) mayAdd(r *registry.Registration, c claim, current Context, all registry.Registrations) error {
	if ok, _ := s.newcomers.Allow(r.Workload, time.Now()); !ok {
		return status.Errorf(codes.ResourceExhausted, "workload %s has registered new addresses too often: wait",
			r.Workload)
	}
	n := 0
	var conflict error
	for key, other := range all.All() {
		if key == r.RegistrationKey {
			continue
		}
		if other.Workload == r.Workload {
			n++
		}
		if conflict == nil {
			conflict = c.conflictRegistered(current, other)
		}
	}
	if n >= maxRegistrations {
		return status.Errorf(codes.ResourceExhausted,
			"workload %s cannot register %s: it has %d registrations already, "+
				"and more are not allowed; stop agents that use its identity (ashorectl get workloadentries shows their addresses)",
			r.Workload, r.Addresses[0], n)
	}
	return conflict
}

// refuseRegistration counts and records that the stream may not register.
func (st *stream) refuseRegistration(err error) {
	s, who := st.server, cmp.Or(st.who.Identity.String(), hostOf(st.peer).String())
	s.metrics.refused.WithLabelValues("not registered").Inc()
	s.metrics.registerErrors.Inc()
	record, silent := s.unregistered.Allow(who, time.Now())
	if !record {
		return
	}
	e := audit.Event{Action: audit.RegistrationRefuse, Actor: who,
		Target:  st.proxy.Namespace + "/" + cmp.Or(st.proxy.registration.group, st.proxy.registration.entry),
		Outcome: audit.Refused, Reason: status.Convert(err).Message(), Details: map[string]string{"node": st.proxy.ID,
			"peer": st.peer, "serial": st.who.Serial}}
	if silent > 0 {
		e.Details["unwritten"] = strconv.Itoa(silent)
	}
	s.audit(e)
}
