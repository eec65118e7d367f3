package admin

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// ExplainRequest asks what PeerAuthentication and the policies say of a request that somebody might
// make.
type ExplainRequest struct {
	// From is the caller: a SPIFFE ID, "shop/web" (namespace and service account, or the name of a
	// workload), the ID of a proxy that is connected or was, or "anonymous" for a caller without a
	// certificate.
	From string
	// To is the target: a proxy's ID, the host of a service ("web.example:80"), "shop/api" for
	// workloads of that name or service account, or an address.
	To string
	// Port is the workload's; 0 when that does not matter.
	Port int
	// Method and Path are of the HTTP request; empty: GET and "/". Host is the one that it names,
	// with or without a port, "web.example:8080"; empty: that of the service that To means, else it
	// is not known. With one of the three only ports that speak HTTP are asked. When all are empty
	// a proxy is asked for a connection; of others the protocol of the port decides.
	Method, Path, Host string
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

// Explainer explains policies. Safe for concurrent use.
type Explainer interface {
	// Explain looks at what is in use now. Errors: ErrInvalid, ErrNotFound for a proxy that is not
	// connected.
	Explain(ctx context.Context, r ExplainRequest) (Explanation, error)
}

func (s *Server) explainRoutes() []route {
	return []route{{"GET /v1/authz/explain", Viewer, s.cfg.Explain != nil, func(r *http.Request) (any, error) {
		q := r.URL.Query()
		ask := ExplainRequest{From: q.Get("from"), To: q.Get("to"), Method: q.Get("method"), Path: q.Get("path"),
			Host: q.Get("host")}
		if text := q.Get("port"); text != "" {
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return nil, NewError(ErrInvalid, strconv.Quote(text)+" is not a port: want 1 to 65535")
			}
			ask.Port = int(port)
		}
		if ask.From == "" || ask.To == "" {
			return nil, NewError(ErrInvalid, "both from and to are needed")
		}
		return s.cfg.Explain.Explain(r.Context(), ask)
	}}}
}

// Explain asks what the policies say; see Explainer.
func (c *Client) Explain(ctx context.Context, r ExplainRequest) (Explanation, error) {
	q := url.Values{"from": {r.From}, "to": {r.To}, "method": {r.Method}, "path": {r.Path}, "host": {r.Host}}
	if r.Port != 0 {
		q.Set("port", strconv.Itoa(r.Port))
	}
	return get[Explanation](ctx, c, "/v1/authz/explain", q)
}
