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
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/nearest"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds"
)

// NoAuthority tells operators why there is no certificate authority.
const NoAuthority = "it has no certificate authority; set xds.address, or in development start it with --xds-tls-address 127.0.0.1:15012"

// Authority answers operators about tokens, workloads and the certificate authority. The fields are
// set before use. Safe for concurrent use.
type Authority struct {
	Manager     *ca.Manager
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

var (
	_ admin.Tokens      = (*Authority)(nil)
	_ admin.Authorities = (*Authority)(nil)
	_ admin.Workloads   = (*Authority)(nil)
)

// answered makes an error of the authority one that says whose fault it is.
func answered(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ca.ErrNotFound):
		return admin.NewError(admin.ErrNotFound, err.Error())
	case errors.Is(err, ca.ErrRotate), errors.Is(err, ca.ErrReplicaToken), errors.Is(err, record.ErrConflict):
		return admin.NewError(admin.ErrConflict, err.Error())
	}
	return err
}

// lifetime is how long a token of a kind is to live; empty: as long as all do. Errors:
// admin.ErrInvalid.
func lifetime(kind, text string, most time.Duration) (time.Duration, error) {
	if text == "" {
		return ca.DefaultTokenTTL, nil
	}
	ttl, err := time.ParseDuration(text)
	if err != nil || ttl < time.Minute || ttl > most {
		return 0, admin.NewError(admin.ErrInvalid, fmt.Sprintf("a %s cannot live for %.40q: want 1m to %s", kind, text,
			most))
	}
	return ttl, nil
}

// CreateToken implements admin.Tokens.
func (o *Authority) CreateToken(ctx context.Context, r admin.TokenRequest, who string) (admin.Token, error) {
	ttl, err := lifetime("token", r.TTL, ca.MaxTokenTTL)
	if err != nil {
		return admin.Token{}, err
	}
	if _, _, ok := cutName(r.Group); !ok {
		return admin.Token{}, admin.NewError(admin.ErrInvalid,
			fmt.Sprintf("%.200q is not the name of a WorkloadGroup: want NAMESPACE/NAME, such as shop/web", r.Group))
	}
	text, t, err := o.Ledger.CreateToken(ctx, ca.TokenRequest{Group: r.Group, TTL: ttl, By: who})
	if errors.Is(err, ca.ErrNoGroup) {
		return admin.Token{}, admin.NewError(admin.ErrNotFound,
			fmt.Sprintf("there is no WorkloadGroup %.200q%s \"ashorectl get workloadgroup\" lists those that are in use, \"ashorectl problems\" why one is not", r.Group, meant(r.Group, o.groupNames())))
	}
	if identity := o.identityOf(ctx, r.Group); errors.Is(err, ca.ErrRevokedGroup) {
		return admin.Token{}, admin.NewError(admin.ErrConflict,
			fmt.Sprintf("no token is made, for nobody could join with it: the identity of group %s, %s, is revoked. \"ashorectl workload list\" shows since when and why, \"ashorectl workload restore %s\" takes it back in", r.Group, identity, identity))
	}
	if err != nil {
		return admin.Token{}, answered(err)
	}
	return admin.Token{
		ID: t.ID, Group: t.Group, Identity: o.identityOf(ctx,
			t.Group), Expires: t.Expires, Token: text, Notes: o.Notes,
		Join: []string{"ashore-agent", "join", "--control-plane", strings.Join(o.planes(), ","),
			"--ca-hash", ca.RootID(o.Manager.Signer().Root), "--group", t.Group},
	}, nil
}

// planes are the addresses by which agents reach this control plane and the other replicas that are
// alive.
func (o *Authority) planes() []string {
	out := slices.Clone(o.Addresses)
	for _, address := range o.OtherAddresses() {
		// The command is pasted into a shell, so what is in the store must be an address.
		if !slices.Contains(out, address) && settings.CheckAdvertised(address) == nil {
			out = append(out, address)
		}
	}
	return out
}

// groupNames are the WorkloadGroups that are in use.
func (o *Authority) groupNames() []string {
	var out []string
	c := o.Published.Context()
	if c == nil {
		return nil
	}
	for key := range c.Inputs().Objects.From(config.Key{Kind: config.WorkloadGroup}) {
		if key.Kind != config.WorkloadGroup {
			break
		}
		out = append(out, key.Namespace+"/"+key.Name)
	}
	return out
}

// meant is the end of a sentence about a name that is not known: the one that it may have been
// meant for.
func meant(name string, known []string) string {
	if near := nearest.Name(name, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ":"
}

// identityOf is what members of a group become; empty when that cannot be told.
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

// ListTokens implements admin.Tokens.
func (o *Authority) ListTokens(ctx context.Context) ([]admin.TokenStatus, error) {
	tokens, err := o.Ledger.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]admin.TokenStatus, len(tokens))
	for i, t := range tokens {
		out[i] = admin.TokenStatus{ID: t.ID, Group: t.Group, Created: t.Created, By: t.By, Expires: t.Expires,
			State: t.State(time.Now()), UsedBy: t.Workload, UsedAt: t.Used}
	}
	return out, nil
}

// RevokeToken implements admin.Tokens.
func (o *Authority) RevokeToken(ctx context.Context, id, who string) error {
	err := o.Ledger.RevokeToken(ctx, id, who)
	if errors.Is(err, ca.ErrNotFound) {
		return admin.NewError(admin.ErrNotFound,
			fmt.Sprintf("there is no join token %.40q: \"ashorectl join-token list\" shows them by their IDs", id))
	}
	return answered(err)
}

// ShowAuthority implements admin.Authorities.
func (o *Authority) ShowAuthority(ctx context.Context) (admin.Authority, error) {
	s, err := o.Manager.Show(ctx)
	out := authorityOf(s)
	out.PEM = string(o.Manager.Bundle().PEM())
	return out, err
}

// RotateAuthority implements admin.Authorities.
func (o *Authority) RotateAuthority(ctx context.Context, r admin.RotateRequest, who string) (admin.Authority, error) {
	if r.Force != "" && !slices.Contains([]ca.Step{ca.StepActivate, ca.StepRetire}, ca.Step(r.Force)) {
		return admin.Authority{}, admin.NewError(admin.ErrInvalid,
			fmt.Sprintf("%q is not a step that can be forced: want activate or retire", r.Force))
	}
	s, err := o.Manager.Rotate(ctx, ca.RotateRequest{Actor: who, Reason: r.Reason, Force: ca.Step(r.Force)})
	if err != nil {
		return admin.Authority{}, answered(err)
	}
	return authorityOf(s), nil
}

// CreateReplicaToken implements admin.Authorities.
func (o *Authority) CreateReplicaToken(_ context.Context, r admin.ReplicaTokenRequest, who string) (admin.ReplicaToken,
	error) {
	ttl, err := lifetime("replica token", r.TTL, ca.MaxReplicaTokenTTL)
	if err != nil {
		return admin.ReplicaToken{}, err
	}
	text, expires, err := o.Manager.CreateReplicaToken(ttl, who)
	return admin.ReplicaToken{Token: text, Expires: expires}, answered(err)
}

// certificateOf is a certificate, for operators.
func certificateOf(c ca.CertificateStatus) admin.Certificate {
	return admin.Certificate{Subject: c.Name, Root: c.Root, Serial: c.Serial, State: c.State, NotAfter: c.NotAfter,
		Renew: c.Renew}
}

// authorityOf is how an authority is, for operators.
func authorityOf(s ca.Status) admin.Authority {
	out := admin.Authority{Kind: s.Source, Folder: s.Folder, TrustDomain: s.TrustDomain, Roots: []admin.Certificate{},
		Signer: certificateOf(s.Signer), Server: certificateOf(s.Server), Bundle: s.BundleID, Problems: s.Problems,
		Rotation: admin.Rotation{Step: string(s.Rotation.Step), Since: s.Rotation.Since,
			Next: string(s.Rotation.Following), Count: s.Rotation.Count, Until: s.Rotation.Until}}
	for _, r := range s.Roots {
		out.Roots = append(out.Roots, certificateOf(r))
	}
	for _, r := range s.Replicas {
		out.Replicas = append(out.Replicas, admin.Replica(r))
	}
	for _, w := range s.Rotation.Waiting {
		out.Rotation.Waiting = append(out.Rotation.Waiting, admin.Waiting(w))
	}
	return out
}

// ListWorkloads implements admin.Workloads.
func (o *Authority) ListWorkloads(ctx context.Context) (admin.WorkloadList, error) {
	workloads, err := o.Ledger.Workloads(ctx)
	if err != nil {
		return admin.WorkloadList{}, err
	}
	revoked := o.Ledger.Revocations()
	out := admin.WorkloadList{Workloads: []admin.Workload{}, Revocations: []admin.Revocation{}}
	proxies := o.proxiesBySerial()
	for _, w := range workloads {
		nodes := map[string]bool{}
		shown := admin.Workload{Name: w.Name, Identity: w.Identity, Group: w.Group, Joined: w.Joined, Bundle: w.Bundle,
			Revoked: w.Revoked || revoked.Has(ca.RevokeIdentity, w.Identity)}
		for i, l := range w.Leaves {
			if l.NotAfter.After(time.Now()) || i == len(w.Leaves)-1 {
				shown.Leaves = append(shown.Leaves, admin.Leaf{Serial: l.Serial, NotAfter: l.NotAfter, Revoked: l.Revoked})
			}
			for _, p := range proxies[l.Serial] {
				shown.Proxies = append(shown.Proxies, p.id)
				shown.Health = latest(shown.Health, p.health)
				nodes[p.node] = true
			}
		}
		shown.Warning = doubles(slices.Sorted(maps.Keys(nodes)))
		out.Workloads = append(out.Workloads, shown)
	}
	for _, r := range revoked.List {
		out.Revocations = append(out.Revocations, admin.Revocation{Kind: string(r.Kind), Name: r.Name, Reason: r.Reason,
			By: r.By, At: r.At})
	}
	return out, nil
}

// doubles is what to say of a workload whose proxies are these nodes.
func doubles(nodes []string) string {
	if len(nodes) < 2 {
		return ""
	}
	return fmt.Sprintf("%d machines go by this name at once, %s: give each a name of its own (ashore-agent leave, then join with --name); one may have a copy of the other's state folder", len(nodes), strings.Join(nodes, " and "))
}

// connectedProxy is a proxy as a list of workloads shows it.
type connectedProxy struct {
	id     string
	node   string        // its whole ID, which names its address
	health *admin.Health // nil: it reported none
}

// latest is the report that came last; nil is none.
func latest(a, b *admin.Health) *admin.Health {
	if a == nil || b != nil && b.At.After(a.At) {
		return b
	}
	return a
}

// healthOf is a report for operators; nil: there is none.
func healthOf(r registry.Report) *admin.Health {
	if r.State == registry.NotReported {
		return nil
	}
	return &admin.Health{Healthy: r.State == registry.ReportedHealthy, Reason: r.Message, At: r.At}
}

// proxiesBySerial are the proxies that are connected, by the certificate that they showed.
func (o *Authority) proxiesBySerial() map[string][]connectedProxy {
	out := map[string][]connectedProxy{}
	connected := o.Proxies.Proxies()
	for i, p := range proxyList(connected) {
		if serial := connected[i].Who.Serial; serial != "" {
			out[serial] = append(out[serial], connectedProxy{p.ID, p.Node, healthOf(connected[i].Health)})
		}
	}
	return out
}

// cutName splits "namespace/name".
func cutName(text string) (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(text, "/")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, "/")
}
