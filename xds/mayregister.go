package xds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// NotJoinedError is why a certificate that is believed registers nobody: its key is not the one that its workload has now.
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

// mayRegister says whether the stream may register what it asks for: the target has to be there, in the namespace and of
// the service account that the stream has proven to be of.
func (st *stream) mayRegister(ctx context.Context) error {
	s, ask := st.server, st.proxy.enrolment
	kind, name := config.WorkloadGroup, ask.group
	if name == "" {
		kind, name = config.WorkloadEntry, ask.entry
	}
	if st.who.Identity == (spiffe.ID{}) && !s.cfg.RegisterAnybody {
		return status.Errorf(codes.PermissionDenied, "a workload registers with an identity: connect with mutual TLS, or start without %s", kind)
	}
	o := s.current.Load().context.Object(config.Key{Kind: kind, Namespace: st.proxy.Namespace, Name: name})
	if o == nil {
		return status.Errorf(codes.FailedPrecondition, "cannot find %s %s/%s", kind, st.proxy.Namespace, name)
	}
	account := ""
	switch spec := o.Spec.(type) {
	case *networking.WorkloadGroup:
		account = entry.Account(spec)
	case *networking.WorkloadEntry:
		account = cmp.Or(spec.ServiceAccount, "default")
	}
	if id := st.who.Identity; id != (spiffe.ID{}) && (id.Namespace != o.Namespace || id.ServiceAccount != account) {
		return status.Errorf(codes.PermissionDenied, "%s %s/%s is of service account %q, the certificate is of %s", kind, o.Namespace, o.Name, account, id)
	}
	if err := mayListen(st.proxy.IPs.Items()[0], hostOf(st.peer)); err != nil {
		return err
	}
	return st.joined(ctx)
}

// joined says whether the stream's certificate is that of a workload as it is now, and of the group that it joined.
func (st *stream) joined(ctx context.Context) error {
	s, ask := st.server, st.proxy.enrolment
	if s.cfg.Joined == nil || st.who.Leaf() == nil {
		return nil
	}
	group, err := s.cfg.Joined(ctx, st.who.Leaf())
	out, not := errors.AsType[*NotJoinedError](err)
	switch {
	case not:
		s.log.Warn("workload does not register", "proxy", st.proxy.ID, "identity", st.who.Identity, "serial", st.who.Serial, "error", err)
		return status.Error(codes.PermissionDenied, cmp.Or(out.Public, "the certificate registers nobody: it was replaced, or is not from a join here"))
	case err != nil:
		s.log.Error("nobody knows whose a certificate is", "proxy", st.proxy.ID, "serial", st.who.Serial, "error", err)
		return status.Error(codes.Unavailable, "the workload could not be looked up: try another replica")
	case group != "" && ask.group != "" && group != st.proxy.Namespace+"/"+ask.group:
		return status.Errorf(codes.PermissionDenied, "the workload joined WorkloadGroup %s and cannot register as one of %s/%s", group, st.proxy.Namespace, ask.group)
	}
	return nil
}

// mayListen says whether a workload at the other end of a connection from a host may be registered at an address. One of
// this machine alone would lead every other proxy to itself.
func mayListen(at, from netip.Addr) error {
	switch {
	case at.IsUnspecified() || at.IsMulticast():
		return status.Errorf(codes.PermissionDenied, "nobody listens at the address %s", at)
	case at.IsLoopback() && !from.IsLoopback():
		return status.Errorf(codes.PermissionDenied, "the address %s leads every proxy to its own machine: set the workload's address", at)
	}
	return nil
}

// mayBegin says whether the certificate may register one more workload. It needs one, or a few; whoever makes up addresses
// would fill the endpoints of its group's services with them.
func (st *stream) mayBegin(r *registry.Registration) error {
	s := st.server
	if st.who.fingerprint == "" {
		return nil
	}
	if old, ok := s.cfg.Runtime.Registrations().Get(r.RegistrationKey); ok && old.Identity == r.Identity {
		return nil // it comes back
	}
	if may, _ := s.newcomers.Allow(st.who.fingerprint, time.Now()); !may {
		return status.Error(codes.ResourceExhausted, "this certificate has registered too many workloads lately: wait")
	}
	return nil
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
	e := audit.Event{Action: audit.RegistrationRefuse, Actor: who, Target: st.proxy.Namespace + "/" + cmp.Or(st.proxy.enrolment.group, st.proxy.enrolment.entry),
		Outcome: audit.Refused, Reason: status.Convert(err).Message(), Details: map[string]string{"node": st.proxy.ID, "peer": st.peer, "serial": st.who.Serial}}
	if silent > 0 {
		e.Details["unwritten"] = strconv.Itoa(silent)
	}
	s.audit(e)
}
