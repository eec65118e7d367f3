package adminapi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds"
)

// noAuthority tells operators why there is no certificate authority.
const noAuthority = "this control plane has no certificate authority; set xds.address, " +
	"or in development start it with --set xds.address=127.0.0.1:15012"

// withKind adds the kind of an error of the authority.
func withKind(err error) error {
	switch {
	case errors.Is(err, ca.ErrNotFound), errors.Is(err, ca.ErrNoGroup):
		return notFound("%v; \"ashorectl get workloadgroup\", \"join-token list\" and "+
			"\"workload list\" show what there is", err)
	case errors.Is(err, ca.ErrRotate), errors.Is(err, ca.ErrReplicaToken), errors.Is(err, record.ErrConflict),
		errors.Is(err, ca.ErrRevokedGroup):
		return conflict("%v", err)
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
		return 0, invalid("a %s cannot live for %.40q: want 1m to %s", kind, text, most)
	}
	return ttl, nil
}

// CreateToken creates a join token. Errors: admin.ErrInvalid; admin.ErrNotFound for the group;
// admin.ErrConflict if its identity is revoked.
func (a *API) CreateToken(ctx context.Context, r admin.TokenRequest) (admin.Token, error) {
	ttl, err := lifetime("token", r.TTL, ca.MaxTokenTTL)
	if err != nil {
		return admin.Token{}, err
	}
	text, t, err := a.Ledger.CreateToken(ctx, ca.TokenRequest{Group: r.Group, TTL: ttl, By: admin.Actor(ctx)})
	if err != nil {
		return admin.Token{}, withKind(err)
	}
	return admin.Token{ID: t.ID, Group: t.Group, Identity: t.Identity, Expires: t.Expires,
		Token: text, Notes: a.Notes,
		Join: []string{"ashore-agent", "join", "--control-plane", strings.Join(a.controlPlanes(), ","),
			"--ca-hash", ca.RootID(a.Manager.Signer().Root), "--group", t.Group}}, nil
}

// controlPlanes returns where agents reach this control plane and the other replicas.
func (a *API) controlPlanes() []string {
	out := slices.Clone(a.Addresses)
	for _, address := range a.OtherAddresses() {
		// The command is pasted into a shell, so what is in the store must be an address.
		if !slices.Contains(out, address) && settings.CheckAdvertised(address) == nil {
			out = append(out, address)
		}
	}
	return out
}

// ListTokens returns the join tokens.
func (a *API) ListTokens(ctx context.Context, _ admin.None) ([]admin.TokenStatus, error) {
	tokens, err := a.Ledger.Tokens(ctx)
	out := make([]admin.TokenStatus, len(tokens))
	for i, t := range tokens {
		out[i] = admin.TokenStatus{ID: t.ID, Group: t.Group, Created: t.Created, By: t.By, Expires: t.Expires,
			State: t.State(time.Now()), UsedBy: t.Workload, UsedAt: t.Used}
	}
	return out, err
}

// RevokeToken revokes a join token. A workload that joined with it stays. Errors:
// admin.ErrNotFound.
func (a *API) RevokeToken(ctx context.Context, t admin.TokenID) (admin.None, error) {
	return admin.None{}, withKind(a.Ledger.RevokeToken(ctx, t.ID, admin.Actor(ctx)))
}

// ShowAuthority returns the state of the certificate authority.
func (a *API) ShowAuthority(ctx context.Context, _ admin.None) (admin.Authority, error) {
	return a.Manager.Show(ctx)
}

// Rotate begins a rotation of the root, or forces its next step. Errors: admin.ErrInvalid;
// admin.ErrConflict if that is not the next step.
func (a *API) Rotate(ctx context.Context, r admin.RotateRequest) (admin.Authority, error) {
	if err := checkReason(r.Reason); err != nil {
		return admin.Authority{}, err
	}
	s, err := a.Manager.Rotate(ctx, ca.RotateRequest{Actor: admin.Actor(ctx), Reason: r.Reason, Force: r.Force})
	return s, withKind(err)
}

// CreateReplicaToken creates a token for one more control plane. Errors: admin.ErrInvalid,
// admin.ErrConflict where none can be made.
func (a *API) CreateReplicaToken(ctx context.Context, r admin.ReplicaTokenRequest) (admin.ReplicaToken, error) {
	ttl, err := lifetime("replica token", r.TTL, ca.MaxReplicaTokenTTL)
	if err != nil {
		return admin.ReplicaToken{}, err
	}
	text, expires, err := a.Manager.CreateReplicaToken(ttl, admin.Actor(ctx))
	return admin.ReplicaToken{Token: text, Expires: expires}, withKind(err)
}

// ListWorkloads returns all workloads and revocations.
func (a *API) ListWorkloads(ctx context.Context, _ admin.None) (admin.WorkloadList, error) {
	workloads, err := a.Workloads(ctx)
	if err != nil {
		return admin.WorkloadList{}, err
	}
	connected := map[string][]xds.ProxyStatus{} // by the serial number of the certificate that they showed
	for _, p := range a.Connected() {
		connected[p.Who.Serial] = append(connected[p.Who.Serial], p)
	}
	revoked := a.Ledger.Revocations()
	out := admin.WorkloadList{Workloads: []admin.Workload{}, Revocations: []admin.Revocation{}}
	for _, w := range workloads {
		item := admin.Workload{Name: w.Name, Identity: w.Identity, Group: w.Group, Joined: w.Joined,
			Leaves: w.Leaves, Revoked: w.Revoked || revoked.Has(w.Identity)}
		for _, l := range w.Leaves {
			for _, p := range connected[l.Serial] {
				item.Proxies = append(item.Proxies, p.Node.ID)
				item.Health = latest(item.Health, p.Health)
			}
		}
		out.Workloads = append(out.Workloads, item)
	}
	for _, r := range revoked.List {
		out.Revocations = append(out.Revocations, admin.Revocation{Name: r.Subject, Reason: r.Reason, By: r.By, At: r.At})
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
