package audit

import (
	"cmp"
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
	WorkloadRevoke     = "workload.revoke"
	WorkloadRestore    = "workload.restore"
	RegistrationRefuse = "registration.refuse"
	SecretCreate       = "secret.create"
	SecretDelete       = "secret.delete"
	SecretRefuse       = "secret.refuse" // a proxy asked for one that it may not have
	ConfigWrite        = "config.write"
	ConfigRead         = "config.read"     // by another control plane
	VIPRelease         = "vip.release"     // unused virtual IPs were released
	RemovalsAccept     = "removals.accept" // retained objects of a source were removed
	LogLevel           = "log.level"       // the level of ashored's log was set
	DumpRead           = "dump.read"
	AdminRefuse        = "admin.refuse"
	// Gap counts events before it that were not written.
	Gap = "audit.gap"
)

// The outcomes of an action.
const (
	OK      = "ok"
	Refused = "refused" // the actor may not do it
	Failed  = "failed"  // the actor may do it, and it did not work
)

// Event is one line of the log.
type Event struct {
	// Time is when it happened. Zero means now.
	Time time.Time `json:"time"`
	// Action is one of the actions above.
	Action string `json:"action"`
	// Actor is who did it, as far as that is proven: "user root (uid 0)", "spiffe://…", "10.0.0.9".
	Actor string `json:"actor,omitempty"`
	// Target is what it was done to: a token's ID, a workload, an identity, a proxy.
	Target string `json:"target,omitempty"`
	// Outcome is OK, Refused or Failed. Empty means OK.
	Outcome string `json:"outcome"`
	// Reason is the operator's reason, or why it was refused. Callers may get a shorter one.
	Reason string `json:"reason,omitempty"`
	// Details are other facts: serial, not after, key, group. Never a secret.
	Details map[string]string `json:"details,omitempty"`
}

// maxText bounds each text of a line, in bytes. Texts may come from unknown callers.
const maxText = 2048

// clean returns an event as it is written: with a time and an outcome, without secrets, bounded.
func (s scrubber) clean(e Event, now time.Time) Event {
	if e.Time.IsZero() {
		e.Time = now
	}
	e.Time, e.Outcome = e.Time.UTC(), cmp.Or(e.Outcome, OK)
	for _, text := range []*string{&e.Action, &e.Actor, &e.Target, &e.Outcome, &e.Reason} {
		*text = s.tidy(*text)
	}
	details := make(map[string]string, len(e.Details))
	for k, v := range e.Details {
		details[k] = s.tidy(v)
	}
	e.Details = details
	return e
}

// tidy returns a text cut at maxText, as valid UTF-8, without secrets. JSON escapes control
// characters.
func (s scrubber) tidy(text string) string { return s.scrub(excerpt.Of(text, maxText)) }
