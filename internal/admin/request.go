package admin

// RequestQuery asks what the proxy of a caller does with a request. Nothing is sent.
type RequestQuery struct {
	// From is the caller: the ID of a connected proxy, or NAMESPACE/NAME of a service account with a
	// connected proxy.
	From string `json:"from"`
	// Host and Port are where the client connects to. Path has the query behind a question mark.
	Host   string `json:"host"`
	Port   uint32 `json:"port"`
	Method string `json:"method"`
	Path   string `json:"path"`
	// Headers are further headers that are known, by their names in lower case.
	Headers map[string]string `json:"headers,omitempty"`
}

// RoutedRequest is what a proxy does with a request.
type RoutedRequest struct {
	// Proxy is the node ID of the caller's proxy, and Identity its SPIFFE ID; empty: it has none.
	Proxy    string `json:"proxy"`
	Identity string `json:"identity,omitempty"`
	// Hops has one for each destination of each route that may take the request, in the order in which
	// routes are tried. It is empty when nothing of the configuration is for that host and port.
	Hops []Hop `json:"hops"`
}

// Hop is what a proxy does with a request at one destination of one route.
type Hop struct {
	// Route names the route: "80, virtual host web.example:80, route canary".
	Route string `json:"route"`
	// If is what has to hold for this route, and is unknown: "the header x-canary".
	If string `json:"if,omitempty"`
	// Options are the timeout, retries and faults of the route.
	Options string `json:"options,omitempty"`
	// Connection means that the port carries connections, whose requests are not looked at.
	Connection bool `json:"connection,omitempty"`
	// Code is the status that the proxy itself returns, with Envoy's response flags in Flags. Zero: it
	// sends the request to Cluster.
	Code  uint32 `json:"code,omitempty"`
	Flags string `json:"flags,omitempty"`
	// Reason is why, or where the request goes.
	Reason string `json:"reason,omitempty"`
	// Cluster is Envoy's name of the destination, and Weight its share in percent.
	Cluster string `json:"cluster,omitempty"`
	Weight  uint32 `json:"weight,omitempty"`
	// Endpoints is how many the proxy balances over. Names that it resolves count as one each.
	Endpoints int `json:"endpoints"`
	// Addresses are those of the endpoints, with their ports: "10.0.0.7:8080".
	Addresses []string `json:"addresses,omitempty"`
	// TLS is "mutual TLS", "TLS" or "plaintext", or how many endpoints get mutual TLS.
	TLS string `json:"tls,omitempty"`
	// Host and Path are those that the destination receives.
	Host string `json:"host,omitempty"`
	Path string `json:"path,omitempty"`
}
