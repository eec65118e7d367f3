package xds

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// enrolment is as which workload a node asks to be registered.
type enrolment struct {
	// group is its WorkloadGroup, or else entry is the WorkloadEntry that it reports for; both empty: it does not ask.
	group, entry string
	// probed says that the proxy asks its workload whether it is ready.
	probed bool
}

// farewellWait bounds how long a stream that has ended may take to say so.
const farewellWait = 5 * time.Second

// maxHealthMessage is how much is kept of what a proxy says about its workload.
const maxHealthMessage = 1 << 10

// register registers the workload beside the proxy if it asks for that.
func (st *stream) register(ctx context.Context) error {
	s, ask := st.server, st.proxy.enrolment
	if s.cfg.Runtime == nil || ask.group == "" && ask.entry == "" {
		return nil
	}
	if err := st.mayRegister(); err != nil {
		s.metrics.refused.WithLabelValues("not registered").Inc()
		s.audit(audit.Event{Action: audit.RegistrationRefuse, Actor: cmp.Or(st.who.Identity.String(), st.peer), Target: st.proxy.Namespace + "/" + cmp.Or(ask.group, ask.entry),
			Outcome: audit.Refused, Reason: err.Error(), Details: map[string]string{"node": st.proxy.ID, "peer": st.peer, "serial": st.who.Serial}})
		return err
	}
	r := registry.Registration{
		RegistrationKey: registry.RegistrationKey{Namespace: st.proxy.Namespace, Group: ask.group, Name: ask.entry},
		Identity:        st.who.Identity.String(),
		Certificate:     st.who.fingerprint,
		Addresses:       slices.Clone(st.proxy.IPs.Items()),
		Labels:          map[string]string{},
		Locality:        st.proxy.Locality,
		Network:         st.proxy.Network,
		Probed:          ask.probed,
		Session:         s.name + "." + st.prefix(),
	}
	if ask.group != "" {
		r.Name = registry.RegistrationName(ask.group, r.Addresses[0], r.Network)
	}
	for _, l := range st.proxy.Labels.Items() {
		r.Labels[l.Key] = l.Value
	}
	if err := s.cfg.Runtime.Connect(ctx, r); err != nil {
		s.log.Error("workload could not be registered", "proxy", st.proxy.ID, "workload", r.Namespace+"/"+r.Name, "error", err)
		return status.Error(codes.Unavailable, "the workload could not be registered: try another replica")
	}
	st.member = &membership{key: r.RegistrationKey, session: r.Session, stream: st, as: r}
	s.speakers.add(st.member)
	s.log.Info("workload registered", "workload", r.Namespace+"/"+r.Name, "group", r.Group, "identity", r.Identity, "proxy", st.proxy.ID)
	return nil
}

// mayRegister says whether the stream may register what it asks for: the target has to be there, in the namespace and of
// the service account that the stream has proven to be of.
func (st *stream) mayRegister() error {
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
	return nil
}

// report takes in what the proxy says about its workload: no error detail means that it is well. Who is not registered
// is not heard.
func (st *stream) report(ctx context.Context, r *ads.Request) error {
	if st.member == nil {
		return nil
	}
	h := registry.Report{State: registry.ReportedHealthy, At: time.Now()}
	if r.Rejected != nil {
		h.State, h.Message = registry.ReportedUnhealthy, bounded(r.Rejected.Message, maxHealthMessage)
	}
	st.server.speakers.note(st.member, h)
	err := st.server.cfg.Runtime.Report(ctx, st.member.key, st.member.session, h)
	switch {
	case errors.Is(err, registry.ErrSession): // a newer stream of the proxy tells by itself
		return nil
	case err != nil:
		st.server.log.Error("report of health is lost: the stream is ended, so that the proxy repeats it", "proxy", st.proxy.ID, "error", err)
		return status.Error(codes.Unavailable, "the report of health could not be taken in: try another replica")
	}
	if log := st.server.log; log.IsDebug() {
		log.Debug("workload reported", "workload", st.member.key.Namespace+"/"+st.member.key.Name, "healthy", r.Rejected == nil, "message", h.Message)
	}
	return nil
}

// unregister says that the proxy has gone; of an expelled one nothing is left.
func (st *stream) unregister() {
	if st.member == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewellWait)
	defer cancel()
	leave := st.server.cfg.Runtime.Disconnect
	if st.expelled.Load() {
		leave = st.server.cfg.Runtime.Remove
	}
	heir, report := st.server.speakers.remove(st.member)
	err := leave(ctx, st.member.key, st.member.session)
	if err == nil && heir != nil {
		err = st.server.inherit(ctx, heir, report)
	}
	if err == nil && heir == nil && st.expelled.Load() { // perhaps only now
		err = st.server.cfg.Runtime.Remove(ctx, st.member.key, "")
	}
	if err != nil && !errors.Is(err, registry.ErrSession) {
		st.server.log.Error("registration was not ended: it counts until its lease ends", "proxy", st.proxy.ID, "error", err)
	}
}

// audit records an event, if anybody does.
func (s *Server) audit(e audit.Event) {
	if s.cfg.Audit != nil {
		s.cfg.Audit(e)
	}
}

// bounded is text, cut after that many bytes.
func bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
