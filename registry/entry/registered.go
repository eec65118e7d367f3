package entry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry"
)

// RegisteredSource is where the WorkloadEntries of registered workloads come from, to people.
const RegisteredSource = "workloads"

// Istio's annotations of the WorkloadEntries of registered workloads: pilot/pkg/autoregistration there.
const (
	groupAnnotation        = "istio.io/autoRegistrationGroup"
	replicaAnnotation      = "istio.io/workloadController"
	connectedAnnotation    = "istio.io/connectedAt"
	disconnectedAnnotation = "istio.io/disconnectedAt"
	probedAnnotation       = "proxy.istio.io/health-checks-enabled"
)

// localityLabel says where a pod of Kubernetes runs. A workload's locality comes with its node.
const localityLabel = "istio-locality"

// Runtime supplies the workloads that registered themselves. registry.Runtime does.
type Runtime interface {
	Registrations() registry.Registrations
	Watch(ctx context.Context) <-chan struct{}
}

// Entries are WorkloadEntry objects by key.
type Entries = pmap.Map[config.Key, *config.Object]

// registered are the workloads that registered themselves, as WorkloadEntries.
type registered struct {
	all     registry.Registrations                      // as of the last Derive
	entries map[registry.RegistrationKey]*config.Object // what was made of them
	of      map[*config.Object]*registry.Registration   // of what it was made
	index   workloads
	adding  workloads                         // those of index with labels beside their groups'
	groups  map[*config.Object]*config.Object // of those of adding
	shown   Entries
}

func newRegistered() registered {
	return registered{entries: map[registry.RegistrationKey]*config.Object{}, of: map[*config.Object]*registry.Registration{}, index: workloads{},
		adding: workloads{}, groups: map[*config.Object]*config.Object{}}
}

// takeRegistrations takes in who registered since the last call, and groups that changed, and marks the services that
// select any of them.
func (d *Deriver) takeRegistrations(groups []config.Key, dirty map[registry.Key]bool) {
	if d.runtime == nil {
		return
	}
	now, touched := d.runtime.Registrations(), map[registry.RegistrationKey]bool{}
	for ch := range now.Diff(d.registered.all) {
		touched[ch.Key] = true
	}
	for _, g := range groups {
		for k := range now.From(registry.RegistrationKey{Namespace: g.Namespace, Group: g.Name}) {
			if k.Namespace != g.Namespace || k.Group != g.Name {
				break
			}
			touched[k] = true
		}
	}
	d.registered.all = now
	before := d.registered.shown
	for k := range touched {
		if k.Group == "" {
			if o := d.objects.At(config.Key{Kind: config.WorkloadEntry, Namespace: k.Namespace, Name: k.Name}); o != nil {
				d.mark(o, dirty)
			}
			continue
		}
		d.replaceRegistered(k, dirty)
	}
	if d.registered.shown != before {
		shown := d.registered.shown
		d.shown.Store(&shown)
	}
}

// replaceRegistered makes the entry of one registration anew.
func (d *Deriver) replaceRegistered(k registry.RegistrationKey, dirty map[registry.Key]bool) {
	x := &d.registered
	var now *config.Object
	r, group := x.all.At(k), d.objects.At(config.Key{Kind: config.WorkloadGroup, Namespace: k.Namespace, Name: k.Group})
	if r != nil {
		now = entryOf(r, group)
	}
	old := x.entries[k]
	var adding *config.Object // the group, of one that has labels beside it
	if now != nil && adds(r, group) {
		adding = group
	}
	if old != nil && now != nil && x.groups[old] == adding && sameEndpoint(old, now, x.of[old], r) {
		dirty = nil // proxies are told nothing new
	}
	if old != nil {
		d.mark(old, dirty)
		x.index.remove(old)
		x.adding.remove(old)
		delete(x.groups, old)
		x.shown = x.shown.Without(old.Key)
		delete(x.of, old)
		delete(x.entries, k)
	}
	if now != nil {
		d.mark(now, dirty)
		x.index.add(now)
		if adding != nil {
			x.adding.add(now)
			x.groups[now] = adding
		}
		x.shown = x.shown.With(now.Key, now)
		x.of[now], x.entries[k] = r, now
	}
}

// sameEndpoint says that two entries of one registration, with what they were made of, are the same endpoint.
func sameEndpoint(a, b *config.Object, from, to *registry.Registration) bool {
	return proto.Equal(a.Spec, b.Spec) && a.Annotations[probedAnnotation] == b.Annotations[probedAnnotation] &&
		from.Health.State == to.Health.State && from.Health.Ports == to.Health.Ports && from.DisconnectedAt.IsZero() == to.DisconnectedAt.IsZero()
}

// entryOf makes the WorkloadEntry of a registered workload. It is nil when there is no such group, or another identity
// belongs to it by now.
func entryOf(r *registry.Registration, group *config.Object) *config.Object {
	if group == nil {
		return nil
	}
	g := group.Spec.(*networking.WorkloadGroup)
	spec := &networking.WorkloadEntry{}
	if g.Template != nil {
		spec = proto.CloneOf(g.Template)
	}
	spec.Address = r.Addresses[0].String()
	spec.Locality = cmp.Or(r.Locality.String(), spec.Locality)
	spec.Network = cmp.Or(r.Network, spec.Network)
	spec.Labels = registeredLabels(r, g)
	account := AccountOf(group)
	if !provenAs(r, account) {
		return nil
	}
	if _, said := spec.Labels[registry.InterceptionLabel]; r.Unintercepted && !said {
		spec.Labels[registry.InterceptionLabel] = registry.InterceptionNone
	}
	if r.Identity != "" {
		spec.ServiceAccount = account.Name
	} else if _, said := spec.Labels[tlsModeLabel]; !said { // without a certificate it takes no mutual TLS
		spec.Labels[tlsModeLabel] = "disabled"
	}
	o := &config.Object{
		Key:         config.Key{Kind: config.WorkloadEntry, Namespace: r.Namespace, Name: r.Name},
		Annotations: registeredAnnotations(r, g),
		Created:     r.Created,
		Origin:      config.Origin{Source: RegisteredSource},
		Spec:        spec,
	}
	o.Hash = config.HashOf(o)
	return o
}

// provenAs reports whether r has this identity. A registration without one (--dev) matches all.
func provenAs(r *registry.Registration, account Account) bool {
	if r.Identity == "" {
		return true
	}
	id, err := spiffe.Parse(r.Identity)
	return err == nil && account == Account{id.Namespace, id.ServiceAccount}
}

// registeredLabels are those of the group's metadata over the template's over the proxy's: what the group says of its
// workloads is so, for policies and services select them by it; a proxy may only add to that.
func registeredLabels(r *registry.Registration, g *networking.WorkloadGroup) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, r.Labels)
	maps.Copy(labels, g.GetTemplate().GetLabels())
	maps.Copy(labels, g.GetMetadata().GetLabels())
	delete(labels, localityLabel)
	return labels
}

func registeredAnnotations(r *registry.Registration, g *networking.WorkloadGroup) map[string]string {
	out := map[string]string{}
	maps.Copy(out, g.GetMetadata().GetAnnotations())
	out[groupAnnotation] = r.Group
	out[replicaAnnotation] = r.Replica
	out[connectedAnnotation] = r.ConnectedAt.UTC().Format(time.RFC3339Nano)
	if !r.DisconnectedAt.IsZero() {
		out[disconnectedAnnotation] = r.DisconnectedAt.UTC().Format(time.RFC3339Nano)
	}
	out[probedAnnotation] = strconv.FormatBool(probed(r, g))
	out[config.HealthAnnotation] = healthText(r.Health)
	return out
}

// probed says that somebody asks the workload whether it is ready.
func probed(r *registry.Registration, g *networking.WorkloadGroup) bool {
	return r.Probed || g.GetProbe() != nil
}

// healthText is a report for people.
func healthText(h registry.Report) string {
	switch {
	case h.State == registry.ReportedHealthy && h.Ports != "":
		return "healthy; ports " + strings.Join(h.Ports.List(), ", ")
	case h.State == registry.ReportedHealthy:
		return "healthy"
	case h.State == registry.NotReported:
		return "not reported"
	case h.Message == "":
		return "unhealthy"
	default:
		return fmt.Sprintf("unhealthy: %s", h.Message)
	}
}
