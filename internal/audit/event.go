package audit

import (
	"maps"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/excerpt"
)

// The actions that are recorded.
const (
	TokenCreate        = "token.create"
	TokenUse           = "token.use"
	TokenRefuse        = "token.refuse"
	TokenRevoke        = "token.revoke"
	CertificateIssue   = "certificate.issue"
	CertificateRefuse  = "certificate.refuse"
	CARotate           = "ca.rotate"
	CALoad             = "ca.load"
	ReplicaToken       = "replica.token"
	ReplicaIssue       = "replica.issue"
	ReplicaForget      = "replica.forget"
	WorkloadJoin       = "workload.join"
	WorkloadRevoke     = "workload.revoke"
	WorkloadRestore    = "workload.restore"
	RegistrationRefuse = "registration.refuse"
	ConfigWrite        = "config.write"
	ConfigRead         = "config.read" // by another control plane
	SettingsReload     = "settings.reload"
	VIPRelease         = "vip.release"     // unused virtual IPs were released
	RemovalsAccept     = "removals.accept" // what was retained of a source was removed
	DumpRead           = "dump.read"
	AdminRefuse        = "admin.refuse"
	// Gap is the log's own: how many events before it were not written, or why the file begins anew.
	Gap = "audit.gap"
)

// The outcomes of an action.
const (
	OK      = "ok"
	Refused = "refused" // who asked may not
	Failed  = "failed"  // it was allowed and did not work
)

// Event is one line of the log.
type Event struct {
	// Time is when; zero stands for now.
	Time time.Time `json:"time"`
	// Action is one of above.
	Action string `json:"action"`
	// Actor is who did it: "user root (uid 0)", "spiffe://…", "10.0.0.9"; as far as it is proven.
	Actor string `json:"actor,omitempty"`
	// Target is what it was done to: a token's ID, a workload, an identity, a proxy.
	Target string `json:"target,omitempty"`
	// Outcome is OK, Refused or Failed; empty stands for OK.
	Outcome string `json:"outcome"`
	// Reason says why: an operator's words, or why it was refused, in full, where the caller was told less.
	Reason string `json:"reason,omitempty"`
	// Details are what else there is to know: serial, not after, key, group. Never a secret.
	Details map[string]string `json:"details,omitempty"`
}

// The bounds of what callers, some of them unknown, may have written into one line.
const (
	maxText    = 2048 // bytes of a text
	maxDetails = 32
)

// clean is e as it is written: with a time and an outcome, without secrets, bounded.
func (e Event) clean(now time.Time) Event {
	if e.Time.IsZero() {
		e.Time = now
	}
	e.Time = e.Time.UTC()
	if e.Outcome == "" {
		e.Outcome = OK
	}
	e.Action, e.Actor, e.Target, e.Outcome, e.Reason = tidy(e.Action), tidy(e.Actor), tidy(e.Target), tidy(e.Outcome), tidy(e.Reason)
	if e.Details == nil {
		return e
	}
	details := make(map[string]string, len(e.Details))
	for i, k := range slices.Sorted(maps.Keys(e.Details)) {
		if i == maxDetails {
			break
		}
		details[tidy(k)] = tidy(e.Details[k])
	}
	e.Details = details
	return e
}

// tidy is text without secrets, cut at maxText.
func tidy(text string) string { return excerpt.Of(scrub(text), maxText) }
