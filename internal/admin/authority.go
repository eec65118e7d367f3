package admin

import "time"

// Authority is how the certificate authority is.
type Authority struct {
	// Kind is "self-signed" or "plugged-in", and Folder where its files are.
	Kind        string `json:"kind"`
	Folder      string `json:"folder,omitempty"`
	TrustDomain string `json:"trustDomain"`
	// Roots are the trusted roots, and those that will be.
	Roots []Certificate `json:"roots"`
	// PEM are the roots that are trusted now, one after the other, for who verifies the control
	// plane or a workload.
	PEM string `json:"pem,omitempty"`
	// Signer is what this control plane signs with, and Server what it shows to agents and proxies.
	Signer Certificate `json:"signer"`
	Server Certificate `json:"server"`
	// Bundle names the set of roots that is trusted.
	Bundle   string   `json:"bundle"`
	Rotation Rotation `json:"rotation"`
	// Replicas are the other control planes of this mesh, which sign below the same root.
	Replicas []Replica `json:"replicas,omitempty"`
	// Problems are what somebody has to see to, such as a plugged-in set that is bad or ends soon.
	Problems []string `json:"problems,omitempty"`
}

// Certificate is one certificate for people. Never a key.
type Certificate struct {
	Subject string `json:"subject,omitempty"`
	// Serial is in hexadecimal digits; empty for a root.
	Serial string `json:"serial,omitempty"`
	// Root is the ID of the root itself, or of the one that the certificate leads to: "sha256:" and
	// the hexadecimal SHA-256, as join commands have it.
	Root string `json:"root"`
	// State is what a root is for: "signs" or "trusted".
	State    string    `json:"state,omitempty"`
	NotAfter time.Time `json:"notAfter"`
	// Renew is when ashored renews it; zero: it does not.
	Renew time.Time `json:"renew,omitzero"`
}

// Replica is another control plane of this mesh that is alive.
type Replica struct {
	// Name is its machine and address, and Address where other replicas reach it.
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
}

// ReplicaTokenRequest asks for a token by which one more control plane shows that it belongs to
// this mesh.
type ReplicaTokenRequest struct {
	// TTL is how long the token can be used, "1h30m". Empty: 1h.
	TTL string `json:"ttl,omitempty"`
}

// ReplicaToken is a replica token that was made. Token is not shown again.
type ReplicaToken struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// Rotation is how far a change of the root is. The new root signs, and the old one is trusted until
// nothing needs it.
type Rotation struct {
	// Since is when it began; zero: no rotation is in progress.
	Since time.Time `json:"since,omitzero"`
	// Waiting are some of those that still need the old root, and Count is how many there are.
	Waiting []Waiting `json:"waiting,omitempty"`
	Count   int       `json:"count,omitempty"`
	// Until is when the last one is waited for no longer; zero: some are waited for until they have
	// done their part.
	Until time.Time `json:"until,omitzero"`
}

// Waiting is one thing that the end of a rotation waits for.
type Waiting struct {
	// Kind is "workload" or "control plane".
	Kind   string    `json:"kind"`
	Name   string    `json:"name"`
	Reason string    `json:"reason"`
	Until  time.Time `json:"until,omitzero"`
}

// RotateRequest asks for a change of the root.
type RotateRequest struct {
	// Force retires the old root at once: workloads that still need it have to join again. False begins
	// a rotation, which ends automatically.
	Force bool `json:"force,omitempty"`
	// Reason is for the audit log.
	Reason string `json:"reason,omitempty"`
}
