package admin

// ExplainRequest asks what PeerAuthentication and the policies say of a request that somebody might
// make.
type ExplainRequest struct {
	// From is the caller: a SPIFFE ID, "shop/web" (namespace and service account), or "anonymous"
	// for a caller without a certificate.
	From string `json:"from"`
	// To is the target: a proxy's ID, the host of a service ("web.example:80"), "shop/api" for
	// workloads of that name or service account, or an address.
	To string `json:"to"`
	// Port is the workload's; 0 when that does not matter.
	Port int `json:"port"`
	// Method and Path are of the HTTP request; empty: GET and "/". Host is the one that it names,
	// with or without a port, "web.example:8080"; empty: that of the service that To means, else it
	// is not known. With one of the three only ports that speak HTTP are asked. When all are empty
	// a proxy is asked for a connection; of others the protocol of the port decides.
	Method string `json:"method"`
	Path   string `json:"path"`
	Host   string `json:"host"`
	// Addresses limits the workloads to those at one of these: "10.0.0.7:8080". Empty: no limit.
	Addresses []string `json:"addresses,omitempty"`
}

// Explanation is what the policies decide, and why.
type Explanation struct {
	// From is the caller's identity, a SPIFFE ID or "anonymous".
	From string `json:"from"`
	// Verdict is "allowed", "denied", or "depends" when something decides that is not known here, or
	// when Parts differ.
	Verdict string `json:"verdict"`
	// Parts are the results for the workloads and ports of To. Equal ones are one.
	Parts []ExplainPart `json:"parts"`
	// Notes are what else plays a part, such as the mode of mutual TLS.
	Notes []string `json:"notes,omitempty"`
}

// ExplainPart is what the policies decide about a call to some of the workloads and ports.
type ExplainPart struct {
	// At are the workloads with their ports: "shop/api-1:8080".
	At []string `json:"at"`
	// Call is what was judged, as proxies compare it: "GET api.example/items", or "a connection" at a
	// port that speaks no HTTP.
	Call    string `json:"call"`
	Verdict string `json:"verdict"`
	// Reason is why, in a sentence.
	Reason string `json:"reason"`
	// Closed means that the connection is closed before there is a request.
	Closed bool `json:"closed,omitempty"`
	// Steps are the policies that were looked at, in the order in which they decide.
	Steps []ExplainStep `json:"steps"`
}

// ExplainStep is one policy.
type ExplainStep struct {
	// Policy is "AuthorizationPolicy shop/deny-admin".
	Policy string `json:"policy"`
	Action string `json:"action"` // "DENY"
	// Matched is true if one of its rules matches. Depends is true if one matches only if something
	// unknown holds, which Why names. Rule is the index of the rule; -1: none.
	Matched bool `json:"matched"`
	Depends bool `json:"depends,omitempty"`
	Rule    int  `json:"rule"`
	// Decides is true for the policy that decides the verdict.
	Decides bool `json:"decides,omitempty"`
	// Why is what matches, or what does not.
	Why string `json:"why,omitempty"`
	// Origin is where it was read, "mesh.yaml:12".
	Origin string `json:"origin,omitempty"`
}
