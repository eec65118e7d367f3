package envoylabel

const (
	// Reporter is "source" at the client's proxy, "destination" at the server's.
	Reporter = "reporter"
	// Service is "host;name;namespace".
	Service = "service"
	// PeerPrincipal is the SPIFFE ID of the other side.
	PeerPrincipal = "peer_principal"
	// PeerWorkload is the DNS name in the client's certificate (package peername), or
	// "workload;namespace;service;revision;cluster" of the server's endpoint.
	PeerWorkload = "peer_workload"
	// RemovedTags lists the labels that the agent leaves out, separated by commas.
	RemovedTags = "removed_tags"
)

// All returns all of them.
func All() []string { return []string{Reporter, Service, PeerPrincipal, PeerWorkload, RemovedTags} }
