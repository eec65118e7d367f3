package xds

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/excerpt"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// registrationRequest is which workload a node asks to be registered as.
type registrationRequest struct {
	// group is its WorkloadGroup, or else entry is the WorkloadEntry that it reports for; both
	// empty: it does not ask.
	group, entry string
	// probed means that the agent checks whether the workload is ready.
	probed bool
}

// disconnectTimeout is how long the end of a registration may take.
const disconnectTimeout = 5 * time.Second

// maxHealthMessage is how much of a health message is kept, in bytes.
const maxHealthMessage = 1 << 10

// register registers the workload if its node asks for that. Errors: a status.
func (st *stream) register(ctx context.Context) error {
	ask := st.proxy.registration
	if st.server.cfg.Runtime == nil || ask.group == "" && ask.entry == "" {
		return nil
	}
	target, err := st.mayRegister(ctx)
	if err == nil {
		st.group = ask.group
		if st.proxy.purpose == forConfig {
			return nil
		}
		err = st.connect(ctx, target)
	}
	if err != nil && status.Code(err) != codes.Unavailable {
		st.refuseRegistration(err)
	}
	return err
}

// connect registers the workload. target is its WorkloadGroup, or the WorkloadEntry that it reports
// for. Errors: a status.
func (st *stream) connect(ctx context.Context, target *config.Object) error {
	ask := st.proxy.registration
	r := registry.Registration{
		RegistrationKey: registry.RegistrationKey{Namespace: st.proxy.Namespace, Group: ask.group, Name: ask.entry},
		Identity:        st.who.Identity.String(),
		Certificate:     st.who.Fingerprint,
		Workload:        st.workload(),
		Addresses:       slices.Clone(st.proxy.IPs.Items()),
		Labels:          map[string]string{},
		Locality:        st.proxy.Locality,
		Network:         st.proxy.Network,
		Unintercepted:   st.proxy.Type == push.Sidecar && st.proxy.Interception == push.None,
		Probed:          ask.probed,
		Session:         st.session(),
	}
	if ask.group != "" {
		r.Name = registry.RegistrationName(ask.group, r.Addresses[0], r.Network)
	}
	for _, l := range st.proxy.Labels.Items() {
		r.Labels[l.Key] = l.Value
	}
	if err := st.mayBegin(target, &r); err != nil {
		return err
	}
	err := st.server.cfg.Runtime.Connect(ctx, r)
	switch {
	case errors.Is(err, registry.ErrTooLarge):
		return status.Error(codes.InvalidArgument, err.Error())
	case err != nil:
		st.logLine(hclog.Error, "workload could not be registered", "proxy", st.proxy.ID,
			"workload", r.Namespace+"/"+r.Name, "error", err)
		return status.Error(codes.Unavailable, "the workload could not be registered: try another replica")
	}
	st.mu.Lock()
	st.registered = &r.RegistrationKey
	st.mu.Unlock()
	st.logLine(hclog.Info, "workload registered", "workload", r.Namespace+"/"+r.Name, "group", r.Group,
		"identity", r.Identity, "proxy", st.proxy.ID)
	return nil
}

// session identifies the stream among all of the workload, on all replicas. The latest one speaks
// for it.
func (st *stream) session() string { return st.server.name + "." + st.prefix() }

// workload identifies the workload among others of its identity, across certificates.
func (st *stream) workload() string {
	if st.who.Workload != "" || st.who.Identity == (spiffe.ID{}) {
		return st.who.Workload
	}
	return st.who.Identity.String() + " from " + hostOf(st.peer).String()
}

// report takes in a health report: without an error detail the workload is healthy. Reports of
// workloads that are not registered are ignored.
func (st *stream) report(ctx context.Context, r *ads.Request) error {
	if st.registered == nil {
		return nil
	}
	h := registry.Report{State: registry.ReportedHealthy, Ports: registry.ReadPortStates(r.Subscribe()), At: time.Now()}
	if r.Rejected != nil {
		h.State, h.Message = registry.ReportedUnhealthy, excerpt.Of(r.Rejected.Message, maxHealthMessage)
	}
	if h.State == registry.ReportedUnhealthy && h.Ports == "" { // an agent that starts does not know them yet
		if r := st.server.cfg.Runtime.Registrations().At(*st.registered); r != nil {
			h.Ports = r.Health.Ports
		}
	}
	err := st.server.cfg.Runtime.Report(ctx, *st.registered, st.session(), h)
	switch {
	case errors.Is(err, registry.ErrSession): // the proxy has a newer stream
		return nil
	case err != nil:
		st.logLine(hclog.Error, "health report was not stored: the stream ends, so that the proxy repeats it",
			"proxy", st.proxy.ID, "error", err)
		return status.Error(codes.Unavailable, "the health report could not be stored: try another replica")
	}
	return nil
}

// unregister ends the registration of the workload, unless it has a newer stream. It removes it if
// the stream was expelled.
func (st *stream) unregister() {
	if st.registered == nil {
		return
	}
	s := st.server
	ctx, cancel := context.WithTimeout(context.Background(), disconnectTimeout)
	defer cancel()
	end := s.cfg.Runtime.Disconnect
	if st.expelled.Load() {
		end = s.cfg.Runtime.Remove
	}
	if err := end(ctx, *st.registered, st.session()); err != nil && !errors.Is(err, registry.ErrSession) {
		st.logLine(hclog.Error, "the registration could not be ended: it lasts until its lease ends", "proxy",
			st.proxy.ID, "error", err)
	}
}
