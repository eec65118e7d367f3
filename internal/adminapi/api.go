package adminapi

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/semaphore"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/xds"
)

// API answers the calls of the admin socket. The fields are set before use. Safe for concurrent
// use.
type API struct {
	Started  time.Time
	Settings settings.Config
	Log      hclog.Logger            // of all parts of the program
	More     []func() []feed.Problem // problems of other parts
	// Published returns the context that proxies are served from; nil before the first one.
	Published func() *push.Context
	Record    func(audit.Event)
	// AuditTail returns the latest n events of the audit log.
	AuditTail func(n int) ([]audit.Event, error)

	// Connected returns the connected proxies, and Resources what one is sent.
	Connected func() []xds.ProxyStatus
	Resources func(id string) ([]xds.TypeDump, error)

	Assembler Assembler
	// Entries returns the WorkloadEntries of workloads that registered themselves, and Derived is the
	// name of the source that makes services of configuration.
	Entries func() entry.Entries
	Derived string

	Store   config.Store
	Records record.Store

	Manager *ca.Manager // nil: there is no certificate authority, and the fields below are not set
	Ledger  *ca.Ledger
	// Workloads returns the workloads that joined.
	Workloads func(context.Context) ([]ca.Workload, error)
	// Revoked returns why an identity or a certificate is revoked, or nil.
	Revoked func(id spiffe.ID, fingerprint string) error
	// Addresses are where agents reach this replica, and Notes what an operator should know of them.
	Addresses, Notes []string
	// OtherAddresses returns where agents reach the other replicas.
	OtherAddresses func() []string
}

// Routes returns all calls, each with the role that may use it.
func (a *API) Routes() []admin.Route {
	routes := []admin.Route{
		admin.Handle(admin.CallCreateToken, admin.Operator, a.CreateToken),
		admin.Handle(admin.CallTokens, admin.Viewer, a.ListTokens),
		admin.Handle(admin.CallRevokeToken, admin.Operator, a.RevokeToken),
		admin.Handle(admin.CallAuthority, admin.Viewer, a.ShowAuthority),
		admin.Handle(admin.CallRotate, admin.Admin, a.Rotate),
		admin.Handle(admin.CallCreateReplicaToken, admin.Admin, a.CreateReplicaToken),
		admin.Handle(admin.CallWorkloads, admin.Viewer, a.ListWorkloads),
		admin.Handle(admin.CallRevoke, admin.Operator, a.Revoke),
		admin.Handle(admin.CallRestore, admin.Operator, a.Restore),
	}
	for i := range routes {
		if a.Manager == nil {
			routes[i] = routes[i].NotSetUp(noAuthority)
		}
	}
	write := admin.Handle(admin.CallWrite, admin.Operator, a.Write)
	preview := admin.Handle(admin.CallPreview, admin.Viewer, a.Preview)
	history := admin.Handle(admin.CallHistory, admin.Viewer, a.History)
	// One write, and one preview or history, runs at a time: they need much memory.
	write.MaxBody, write.Turn = admin.MaxApply, semaphore.NewWeighted(1)
	preview.MaxBody, preview.Turn = admin.MaxApply, semaphore.NewWeighted(1)
	history.Turn = preview.Turn
	return append(routes, write, preview, history,
		admin.Handle(admin.CallVersion, admin.Viewer, a.Version),
		admin.Handle(admin.CallStatus, admin.Viewer, a.Status),
		admin.Handle(admin.CallProblems, admin.Viewer, a.Problems),
		admin.Handle(admin.CallObjects, admin.Viewer, a.Objects),
		admin.Handle(admin.CallServices, admin.Viewer, a.Services),
		admin.Handle(admin.CallDescribe, admin.Viewer, a.Describe),
		admin.Handle(admin.CallExplain, admin.Viewer, a.Explain),
		admin.Handle(admin.CallRoute, admin.Operator, a.RouteRequest),
		admin.Handle(admin.CallLogLevel, admin.Operator, a.SetLogLevel),
		admin.Handle(admin.CallDump, admin.Operator, a.Dump),
		admin.Handle(admin.CallAudit, admin.Operator, a.ReadAudit),
		admin.Handle(admin.CallAcceptRemovals, admin.Operator, a.AcceptRemovals),
		admin.Handle(admin.CallReleaseVIPs, admin.Operator, a.ReleaseVIPs))
}
