package adminapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds"
)

// noAuthority tells operators why there is no certificate authority.
const noAuthority = "this control plane has no certificate authority; set xds.address, " +
	"or in development start it with --set xds.address=127.0.0.1:15012"

// Authority answers about tokens, workloads and the certificate authority. The fields are set before
// use. Safe for concurrent use.
type Authority struct {
	Manager     *ca.Manager // nil: there is no certificate authority
	Ledger      *ca.Ledger
	TrustDomain string
	Published   *Published
	Proxies     *xds.Server
	// Group returns the namespace and service account of a WorkloadGroup. Errors: ca.ErrNoGroup.
	Group func(ctx context.Context, group string) (namespace, account string, err error)
	// Revoked returns why an identity or a certificate is revoked, or nil.
	Revoked func(id spiffe.ID, fingerprint string) error
	// Addresses are where agents reach this replica, and Notes what an operator should know of them.
	Addresses, Notes []string
	// OtherAddresses returns where agents reach the other replicas.
	OtherAddresses func() []string
}

// Routes returns the routes of the calls that o answers.
func (o *Authority) Routes() []admin.Route {
	routes := []admin.Route{
		admin.Handle(admin.CallCreateToken, admin.Operator, o.CreateToken),
		admin.Handle(admin.CallTokens, admin.Viewer, o.ListTokens),
		admin.Handle(admin.CallRevokeToken, admin.Operator, o.RevokeToken),
		admin.Handle(admin.CallAuthority, admin.Viewer, o.Show),
		admin.Handle(admin.CallRotate, admin.Admin, o.Rotate),
		admin.Handle(admin.CallCreateReplicaToken, admin.Admin, o.CreateReplicaToken),
		admin.Handle(admin.CallWorkloads, admin.Viewer, o.ListWorkloads),
		admin.Handle(admin.CallRevoke, admin.Operator, o.Revoke),
		admin.Handle(admin.CallRestore, admin.Operator, o.Restore),
	}
	for i := range routes {
		if o.Manager == nil {
			routes[i] = routes[i].NotSetUp(noAuthority)
		}
	}
	return routes
}

// withKind adds the kind of an error of the authority.
func withKind(err error) error {
	switch {
	case errors.Is(err, ca.ErrNotFound):
		return admin.NewError(admin.ErrNotFound, "%v", err)
	case errors.Is(err, ca.ErrRotate), errors.Is(err, ca.ErrReplicaToken), errors.Is(err, record.ErrConflict):
		return admin.NewError(admin.ErrConflict, "%v", err)
	}
	return err
}

// lifetime returns how long a token of a kind is valid; an empty text means the default. Errors:
// admin.ErrInvalid.
func lifetime(kind, text string, most time.Duration) (time.Duration, error) {
	if text == "" {
		return ca.DefaultTokenTTL, nil
	}
	ttl, err := time.ParseDuration(text)
	if err != nil || ttl < time.Minute || ttl > most {
		return 0, admin.NewError(admin.ErrInvalid, "a %s cannot live for %.40q: want 1m to %s", kind, text, most)
	}
	return ttl, nil
}

// CreateToken creates a join token. Errors: admin.ErrInvalid; admin.ErrNotFound for the group;
// admin.ErrConflict if its identity is revoked.
func (o *Authority) CreateToken(ctx context.Context, r admin.TokenRequest) (admin.Token, error) {
	ttl, err := lifetime("token", r.TTL, ca.MaxTokenTTL)
	if err != nil {
		return admin.Token{}, err
	}
	if !qualified(r.Group) {
		return admin.Token{}, admin.NewError(admin.ErrInvalid,
			"%.200q is not the name of a WorkloadGroup: want NAMESPACE/NAME, such as shop/web", r.Group)
	}
	text, t, err := o.Ledger.CreateToken(ctx, ca.TokenRequest{Group: r.Group, TTL: ttl, By: admin.Actor(ctx)})
	identity := o.identityOf(ctx, r.Group)
	switch {
	case errors.Is(err, ca.ErrNoGroup):
		return admin.Token{}, admin.NewError(admin.ErrNotFound, "there is no WorkloadGroup %.200q: \"ashorectl get "+
			"workloadgroup\" lists those that are active, \"ashorectl problems\" why one is not", r.Group)
	case errors.Is(err, ca.ErrRevokedGroup):
		return admin.Token{}, admin.NewError(admin.ErrConflict, "no token is made: the identity of group %s, %s, is "+
			"revoked. \"ashorectl workload restore %s\" restores it", r.Group, identity, identity)
	case err != nil:
		return admin.Token{}, withKind(err)
	}
	return admin.Token{ID: t.ID, Group: t.Group, Identity: identity, Expires: t.Expires, Token: text, Notes: o.Notes,
		Join: []string{"ashore-agent", "join", "--control-plane", strings.Join(o.controlPlanes(), ","),
			"--ca-hash", ca.RootID(o.Manager.Signer().Root), "--group", t.Group}}, nil
}

// controlPlanes returns where agents reach this control plane and the other replicas.
func (o *Authority) controlPlanes() []string {
	out := slices.Clone(o.Addresses)
	for _, address := range o.OtherAddresses() {
		// The command is pasted into a shell, so what is in the store must be an address.
		if !slices.Contains(out, address) && settings.CheckAdvertised(address) == nil {
			out = append(out, address)
		}
	}
	return out
}

// identityOf returns the identity of the members of a group; empty if it is not known.
func (o *Authority) identityOf(ctx context.Context, group string) string {
	namespace, account, err := o.Group(ctx, group)
	if err != nil {
		return ""
	}
	id, err := spiffe.New(o.TrustDomain, namespace, account)
	if err != nil {
		return ""
	}
	return id.String()
}

// ListTokens returns the join tokens.
func (o *Authority) ListTokens(ctx context.Context, _ admin.None) ([]admin.TokenStatus, error) {
	tokens, err := o.Ledger.Tokens(ctx)
	out := make([]admin.TokenStatus, len(tokens))
	for i, t := range tokens {
		out[i] = admin.TokenStatus{ID: t.ID, Group: t.Group, Created: t.Created, By: t.By, Expires: t.Expires,
			State: t.State(time.Now()), UsedBy: t.Workload, UsedAt: t.Used}
	}
	return out, err
}

// RevokeToken revokes a join token. A workload that joined with it stays. Errors: admin.ErrNotFound.
func (o *Authority) RevokeToken(ctx context.Context, t admin.TokenID) (admin.None, error) {
	err := o.Ledger.RevokeToken(ctx, t.ID, admin.Actor(ctx))
	if errors.Is(err, ca.ErrNotFound) {
		err = admin.NewError(admin.ErrNotFound,
			"there is no join token %.40q: \"ashorectl join-token list\" shows them by their IDs", t.ID)
	}
	return admin.None{}, withKind(err)
}

// Show returns the state of the certificate authority.
func (o *Authority) Show(ctx context.Context, _ admin.None) (admin.Authority, error) {
	return o.Manager.Show(ctx)
}

// Rotate begins a rotation of the root, or forces its next step. Errors: admin.ErrInvalid;
// admin.ErrConflict if that is not the next step.
func (o *Authority) Rotate(ctx context.Context, r admin.RotateRequest) (admin.Authority, error) {
	if r.Force != "" && !slices.Contains([]string{ca.StepActivate, ca.StepRetire}, r.Force) {
		return admin.Authority{}, admin.NewError(admin.ErrInvalid,
			"%q is not a step that can be forced: want activate or retire", r.Force)
	}
	if err := checkReason(r.Reason); err != nil {
		return admin.Authority{}, err
	}
	s, err := o.Manager.Rotate(ctx, ca.RotateRequest{Actor: admin.Actor(ctx), Reason: r.Reason, Force: r.Force})
	return s, withKind(err)
}

// CreateReplicaToken creates a token for one more control plane. Errors: admin.ErrInvalid,
// admin.ErrConflict where none can be made.
func (o *Authority) CreateReplicaToken(ctx context.Context, r admin.ReplicaTokenRequest) (admin.ReplicaToken, error) {
	ttl, err := lifetime("replica token", r.TTL, ca.MaxReplicaTokenTTL)
	if err != nil {
		return admin.ReplicaToken{}, err
	}
	text, expires, err := o.Manager.CreateReplicaToken(ttl, admin.Actor(ctx))
	return admin.ReplicaToken{Token: text, Expires: expires}, withKind(err)
}

// ListWorkloads returns all workloads and revocations.
func (o *Authority) ListWorkloads(ctx context.Context, _ admin.None) (admin.WorkloadList, error) {
	workloads, err := o.Ledger.Workloads(ctx)
	if err != nil {
		return admin.WorkloadList{}, err
	}
	connected := o.Proxies.Proxies()
	bySerial := map[string][]int{} // the indexes in connected, by the certificate that a proxy showed
	for i, p := range connected {
		bySerial[p.Who.Serial] = append(bySerial[p.Who.Serial], i)
	}
	shown := proxyList(connected)
	revoked := o.Ledger.Revocations()
	out := admin.WorkloadList{Workloads: []admin.Workload{}, Revocations: []admin.Revocation{}}
	for _, w := range workloads {
		nodes := map[string]bool{} // of the proxies that show its certificates
		item := admin.Workload{Name: w.Name, Identity: w.Identity, Group: w.Group, Joined: w.Joined, Bundle: w.Bundle,
			Revoked: w.Revoked || revoked.Has(ca.RevokeIdentity, w.Identity)}
		for _, l := range w.Leaves {
			item.Leaves = append(item.Leaves, admin.Leaf{Serial: l.Serial, NotAfter: l.NotAfter, Revoked: l.Revoked})
			for _, p := range bySerial[l.Serial] {
				item.Proxies = append(item.Proxies, shown[p].ID)
				item.Health = latest(item.Health, connected[p].Health)
				nodes[shown[p].Node] = true
			}
		}
		if len(nodes) > 1 {
			item.Warning = fmt.Sprintf("%d machines use this name, %s: give each a name of its own (ashore-agent leave, "+
				"then join with --name); one may have a copy of the other's state folder", len(nodes),
				strings.Join(slices.Sorted(maps.Keys(nodes)), " and "))
		}
		out.Workloads = append(out.Workloads, item)
	}
	for _, r := range revoked.List {
		out.Revocations = append(out.Revocations, admin.Revocation{Kind: string(r.Kind), Name: r.Name, Reason: r.Reason,
			By: r.By, At: r.At})
	}
	return out, nil
}

// latest returns the later one of two reports; nil is none.
func latest(known *admin.Health, r registry.Report) *admin.Health {
	if r.State == registry.NotReported || known != nil && !r.At.After(known.At) {
		return known
	}
	return &admin.Health{Healthy: r.State == registry.ReportedHealthy, Reason: r.Message, At: r.At}
}

// qualified says that a text is NAMESPACE/NAME.
func qualified(text string) bool {
	namespace, name, _ := strings.Cut(text, "/")
	return namespace != "" && name != "" && !strings.Contains(name, "/")
}
