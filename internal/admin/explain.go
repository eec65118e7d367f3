package admin

// ExplainRequest asks what PeerAuthentication and the policies say of a request that somebody might
// make.
type ExplainRequest struct {
	// From is the caller: a SPIFFE ID, "shop/web" (namespace and service account, or the name of a
	// workload), the ID of a proxy that is connected or was, or "anonymous" for a caller without a
	// certificate.
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
}

// Explanation is what the policies say, and why.
type Explanation struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Request is what was judged: "GET /x to shop/web, workload port 8080, from shop/api
	// (spiffe://…)".
	Request string `json:"request"`
	// Verdict is "allowed", "denied", or "depends" when something decides that is not known here.
	Verdict string `json:"verdict"`
	// Reason is why, in a sentence.
	Reason string `json:"reason"`
	// Steps are the policies that were looked at, in the order in which they decide. Empty where
	// there are Parts.
	Steps []ExplainStep `json:"steps"`
	// Parts are what is said of each, where To means several workloads or ports and not the same is
	// said of all.
	Parts []ExplainPart `json:"parts,omitempty"`
	// Notes are what else plays a part, such as the mode of mutual TLS.
	Notes []string `json:"notes,omitempty"`
}

// ExplainPart is what the policies say of a call to some of the workloads and ports.
type ExplainPart struct {
	// At are the workloads with their ports: "shop/api-1:8080".
	At []string `json:"at"`
	// Call is what was judged: "GET /items", or "a connection" at a port that speaks no HTTP.
	Call string `json:"call"`
	// Verdict, Reason and Steps are as in Explanation.
	Verdict string        `json:"verdict"`
	Reason  string        `json:"reason"`
	Steps   []ExplainStep `json:"steps"`
}

// ExplainStep is one policy.
type ExplainStep struct {
	// Policy is "AuthorizationPolicy shop/deny-admin".
	Policy string `json:"policy"`
	Action string `json:"action"` // "DENY"
	// Matched means that one of its rules matches. Depends means that one matches only if something
	// unknown holds, which Why names. Rule is the rule, counted from 0; -1: none.
	Matched bool `json:"matched"`
	Depends bool `json:"depends,omitempty"`
	Rule    int  `json:"rule"`
	// Decides says that the verdict is this policy's.
	Decides bool `json:"decides,omitempty"`
	// Why is what matches, or what does not.
	Why string `json:"why,omitempty"`
	// Origin is where it was read, "mesh.yaml:12".
	Origin string `json:"origin,omitempty"`
}
