package push

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// judgedPeer is what PeerAuthentication says of a call, before any policy is asked.
type judgedPeer struct {
	// verdict is Denied when the connection is closed, Depends when the port decides and is not known.
	verdict Verdict
	// reason is why, in a sentence without a final period; of a call that is allowed by it, what it means for the caller.
	reason string
}

// judgePeer says whether the workload takes the connection of a call at all. Where mutual TLS is disabled nobody shows a
// certificate of the mesh, and the caller becomes nobody. Routers take what their Gateways say.
func (sc *Scope) judgePeer(call *Call, domains []string) judgedPeer {
	if sc.Type == Router {
		return judgedPeer{verdict: Allowed}
	}
	d := decide(sc.PeerAuthentication.Items(), sc.Mesh.Config.GetRootNamespace())
	mode, by := d.at(call.Port)
	nobody := call.From == spiffe.ID{}
	switch {
	case nobody && call.Port == 0 && d.strictDiffers():
		return judgedPeer{Depends, d.workload.Key.String() + " lets callers without a certificate in at some ports alone, and the port is not known"}
	case nobody && mode == PeerStrict:
		return judgedPeer{Denied, by.Key.String() + " is STRICT: connections without a certificate of the mesh are closed before any policy is asked"}
	case !nobody && mode == PeerDisable && slices.Contains(domains, call.From.TrustDomain):
		call.From, call.Certificate = spiffe.ID{}, ""
		return judgedPeer{Allowed, by.Key.String() + " disables mutual TLS, so that the caller is nobody"}
	default:
		return judgedPeer{verdict: Allowed}
	}
}

// JudgeHandshake is Judge, with what becomes of the caller's certificate in the handshake before: workloads take those of
// the mesh's trust domain and its aliases. Routers, and Sidecars' ingress listeners with TLS of their own, say themselves
// whose they take.
func (sc *Scope) JudgeHandshake(call Call) Judgement {
	domains := sc.trustDomains()
	if sc.Type == Router || call.From == (spiffe.ID{}) || slices.Contains(domains, call.From.TrustDomain) {
		return sc.Judge(call)
	}
	if mode, _ := decide(sc.PeerAuthentication.Items(), sc.Mesh.Config.GetRootNamespace()).at(call.Port); mode == PeerDisable {
		return sc.Judge(call)
	}
	return Judgement{Verdict: Denied, Reason: "certificates of the trust domain " + call.From.TrustDomain +
		" are refused in the handshake: the mesh takes those of " + strings.Join(domains, ", ")}
}

// trustDomains are the mesh's own and its aliases.
func (sc *Scope) trustDomains() []string {
	own := cmp.Or(sc.Mesh.Config.GetTrustDomain(), "cluster.local")
	return append([]string{own}, sc.Mesh.Config.GetTrustDomainAliases()...)
}

// strictDiffers says that some ports of a workload take mutual TLS alone, and others do not.
func (d decidingPeers) strictDiffers() bool {
	others, _ := d.mode()
	for port := range peerSpec(d.workload).GetPortLevelMtls() {
		if mode, _ := d.at(port); (mode == PeerStrict) != (others == PeerStrict) {
			return true
		}
	}
	return false
}

// amend brings it into what the policies say.
func (p judgedPeer) amend(j *Judgement) {
	switch {
	case p.verdict == Depends && j.Verdict == Allowed:
		j.Verdict, j.Reason = Depends, p.reason
	case p.verdict == Allowed && p.reason != "":
		j.Reason += "; " + p.reason
	}
}
