package admin

import "time"

// Workload is a workload that has, or had, certificates.
type Workload struct {
	// Name is "shop/web-1".
	Name     string `json:"name"`
	Identity string `json:"identity"`
	// Group is the WorkloadGroup that it joined; empty when it proved itself otherwise.
	Group  string    `json:"group,omitempty"`
	Joined time.Time `json:"joined,omitzero"`
	// Leaves are its certificates that have not ended, or the latest one; the latest last.
	Leaves []Leaf `json:"leaves,omitempty"`
	// Revoked means that one of Revocations applies to it.
	Revoked bool `json:"revoked,omitempty"`
	// Proxies are the IDs of its proxies that are connected now.
	Proxies []string `json:"proxies,omitempty"`
	// Health is what one of these reported last of the workload: nil when none did, or it is not
	// registered.
	Health *Health `json:"health,omitempty"`
}

// Health is how a registered workload is, in the words of its agent.
type Health struct {
	Healthy bool `json:"healthy"`
	// Reason is why not; empty when it is healthy.
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// Leaf is one certificate of a workload.
type Leaf struct {
	// Serial is in hexadecimal digits.
	Serial string `json:"serial"`
	// SHA256 is the hash of its DER in hexadecimal digits.
	SHA256   string    `json:"sha256"`
	NotAfter time.Time `json:"notAfter"`
	// Root is the ID of the root that it leads to.
	Root string `json:"root,omitempty"`
}

// Revocation is what is not trusted any more.
type Revocation struct {
	// Name is a SPIFFE ID, or a workload such as "shop/web-1".
	Name   string    `json:"name"`
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
}

// WorkloadList is all that is known of workloads.
type WorkloadList struct {
	Workloads   []Workload   `json:"workloads"`
	Revocations []Revocation `json:"revocations"`
}

// RevokeRequest names what is to be revoked, or restored.
type RevokeRequest struct {
	// Name is a SPIFFE ID, or a workload such as "shop/web-1".
	Name string `json:"name"`
	// Reason is for the audit log and the list of revocations. At most 1024 bytes.
	Reason string `json:"reason,omitempty"`
	// Force revokes an identity that no workload has yet.
	Force bool `json:"force,omitempty"`
}

// Revoked is what a revocation, or its end, concerns.
type Revoked struct {
	Name string `json:"name"`
	// Workloads are those that it concerns, as far as they are known; more may have the identity.
	Workloads []string `json:"workloads,omitempty"`
	// Proxies is how many are connected to this replica and not revoked themselves: they receive it
	// within a second. Others receive it when they connect.
	Proxies int `json:"proxies"`
	// Notes are what is worth knowing, such as how many receive it.
	Notes []string `json:"notes,omitempty"`
}
