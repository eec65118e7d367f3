package admin

import (
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Call is the name of a call with a request Q and a response A.
type Call[Q, A any] string

// Stream is the name of a call with a request Q that is answered by any number of items T.
type Stream[Q, T any] string

// None is an empty request or response.
type None struct{}

// The calls of the API.
const (
	CallVersion            Call[None, Version]                     = "version"
	CallStatus             Call[None, Status]                      = "status"
	CallProblems           Call[None, []feed.Problem]              = "problems"
	CallObjects            Call[ObjectQuery, []Object]             = "objects"
	CallDump               Call[DumpRequest, Dump]                 = "dump"
	CallExplain            Call[ExplainRequest, Explanation]       = "authz/explain"
	CallAcceptRemovals     Call[AcceptRequest, Accepted]           = "sources/accept-removals"
	CallReleaseVIPs        Call[None, ReleasedVIPs]                = "vips/release"
	CallStored             Call[ObjectQuery, []Object]             = "store/objects"
	CallHistory            Call[HistoryRequest, StoreHistory]      = "store/history"
	CallDifferences        Call[HistoryRequest, StoreHistory]      = "store/differences"
	CallWrite              Call[StoreWrite, Written]               = "store/write"
	CallPreview            Call[StoreWrite, Written]               = "store/preview"
	CallCreateToken        Call[TokenRequest, Token]               = "join-tokens/create"
	CallTokens             Call[None, []TokenStatus]               = "join-tokens"
	CallRevokeToken        Call[TokenID, None]                     = "join-tokens/revoke"
	CallAuthority          Call[None, Authority]                   = "ca"
	CallRotate             Call[RotateRequest, Authority]          = "ca/rotate"
	CallCreateReplicaToken Call[ReplicaTokenRequest, ReplicaToken] = "ca/replica-tokens/create"
	CallWorkloads          Call[None, WorkloadList]                = "workloads"
	CallRevoke             Call[RevokeRequest, Revoked]            = "workloads/revoke"
	CallRestore            Call[RevokeRequest, Revoked]            = "workloads/restore"

	StreamServices Stream[ServiceQuery, ServiceEvent] = "services"
	StreamAudit    Stream[TailRequest, audit.Event]   = "audit"
)

// Follows says that a stream goes on with what is new until the client ends it.
func (q ServiceQuery) Follows() bool { return q.Watch }

// Follows says that a stream goes on with what is new until the client ends it.
func (q TailRequest) Follows() bool { return q.Follow }
