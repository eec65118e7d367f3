package admin

import (
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Call is the name of a call with a request Q and a response A. Send sends it and Handle answers it.
type Call[Q, A any] string

// None is an empty request or response.
type None struct{}

// The calls of the API.
const (
	CallVersion            Call[None, Version]                     = "version"
	CallStatus             Call[None, Status]                      = "status"
	CallProblems           Call[None, []feed.Problem]              = "problems"
	CallObjects            Call[ObjectQuery, []Object]             = "objects"
	CallServices           Call[ServiceQuery, []Service]           = "services"
	CallDescribe           Call[DescribeQuery, Description]        = "describe"
	CallDump               Call[DumpRequest, Dump]                 = "dump"
	CallExplain            Call[ExplainRequest, Explanation]       = "authz/explain"
	CallRoute              Call[RequestQuery, RoutedRequest]       = "route"
	CallLogLevel           Call[LogLevel, LogLevel]                = "log/level"
	CallAudit              Call[AuditQuery, []audit.Event]         = "audit"
	CallAcceptRemovals     Call[AcceptRequest, Accepted]           = "sources/accept-removals"
	CallReleaseVIPs        Call[None, ReleasedVIPs]                = "vips/release"
	CallHistory            Call[HistoryRequest, StoreHistory]      = "store/history"
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
)
