package entry

import (
	"cmp"
	"maps"
	"strconv"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/peername"
	"github.com/ashore-mesh/ashore/registry"
)

// RegisteredSource is the source of the WorkloadEntry objects of registered workloads.
const RegisteredSource = "workloads"

// The annotations of WorkloadEntry objects of registered workloads.
// Source: Istio, pilot/pkg/autoregistration.
const (
	groupAnnotation        = "istio.io/autoRegistrationGroup"
	replicaAnnotation      = "istio.io/workloadController"
	connectedAnnotation    = "istio.io/connectedAt"
	disconnectedAnnotation = "istio.io/disconnectedAt"
	probedAnnotation       = "proxy.istio.io/health-checks-enabled"
)

// localityLabel is the label with the locality of a Kubernetes pod. Workloads register their
// locality instead.
const localityLabel = "istio-locality"

// updateRegistrations applies changed registrations and WorkloadGroups, and marks the services that
// select their workloads as changed.
func (d *Deriver) updateRegistrations(groups []config.Key, changed changes) {
	if d.runtime == nil {
		return
	}
	current, touched := d.runtime.Registrations(), map[registry.RegistrationKey]bool{}
	for ch := range current.Diff(d.registrations) {
		touched[ch.Key] = true
	}
	for _, g := range groups {
		for k := range current.From(registry.RegistrationKey{Namespace: g.Namespace, Group: g.Name}) {
			if k.Namespace != g.Namespace || k.Group != g.Name {
				break
			}
			touched[k] = true
		}
	}
	d.registrations = current
	entries := d.Entries()
	for k := range touched {
		if k.Group != "" {
			entries = d.replaceRegistered(k, entries, changed)
			continue
		}
		key := config.Key{Kind: config.WorkloadEntry, Namespace: k.Namespace, Name: k.Name}
		if o := d.objects.At(key); o != nil { // its reported health changed
			d.markSelecting(o, changed)
		}
	}
	d.entries.Store(&entries)
}

// replaceRegistered derives the WorkloadEntry of a registration again.
func (d *Deriver) replaceRegistered(
	k registry.RegistrationKey, entries Entries, changed changes,
) Entries {
	previous, current := d.byKey[k], (*workload)(nil)
	group := d.objects.At(config.Key{Kind: config.WorkloadGroup, Namespace: k.Namespace, Name: k.Group})
	if r := d.registrations.At(k); r != nil && group != nil {
		current = registeredWorkload(r, group)
	}
	if previous != nil && current != nil && sameEndpoint(previous, current) {
		changed = newChanges() // no service changes
	}
	d.setWorkload(d.registered, previous, false, changed)
	d.setWorkload(d.registered, current, true, changed)
	if previous != nil {
		entries = entries.Without(previous.object.Key)
		delete(d.byKey, k)
	}
	if current != nil {
		entries = entries.With(current.object.Key, current.object)
		d.byKey[k] = current
	}
	return entries
}

// sameEndpoint reports whether two versions of a registered workload are the same endpoint.
func sameEndpoint(a, b *workload) bool {
	x, y := a.registration, b.registration
	return proto.Equal(a.object.Spec, b.object.Spec) &&
		a.object.Annotations[probedAnnotation] == b.object.Annotations[probedAnnotation] &&
		x.Health.State == y.Health.State && x.Health.Ports == y.Health.Ports &&
		x.DisconnectedAt.IsZero() == y.DisconnectedAt.IsZero()
}

// registeredWorkload returns a registered workload with its WorkloadEntry. It returns nil if the
// group has another service account than the workload.
func registeredWorkload(r *registry.Registration, group *config.Object) *workload {
	g, account := group.Spec.(*networking.WorkloadGroup), AccountOf(group)
	if !authenticatedAs(r, account) {
		return nil
	}
	spec := &networking.WorkloadEntry{}
	if g.Template != nil {
		spec = proto.CloneOf(g.Template)
	}
	spec.Address = r.Addresses[0].String()
	spec.Locality = cmp.Or(r.Locality.String(), spec.Locality)
	spec.Network = cmp.Or(r.Network, spec.Network)
	spec.Labels = GroupLabels(g, r.Labels)
	if spec.Labels[peername.WorkloadLabel] == "" {
		spec.Labels[peername.WorkloadLabel] = group.Name
	}
	if r.Unintercepted && spec.Labels[registry.InterceptionLabel] == "" {
		spec.Labels[registry.InterceptionLabel] = registry.InterceptionNone
	}
	if r.Identity != "" {
		spec.ServiceAccount = account.Name
	} else if spec.Labels[tlsModeLabel] == "" { // it has no certificate for mutual TLS
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
	return &workload{object: o, registration: r}
}

// GroupLabels returns the labels of a workload of a group. The labels of the group's metadata take
// precedence over those of its template, and these over those that the workload registered. So a
// workload can only add labels.
func GroupLabels(g *networking.WorkloadGroup, registered map[string]string) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, registered)
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
	out[probedAnnotation] = strconv.FormatBool(r.Probed || g.GetProbe() != nil)
	out[config.HealthAnnotation] = healthText(r.Health)
	return out
}

// healthText describes a report.
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
		return "unhealthy: " + h.Message
	}
}
