package registry

import (
	"net/netip"

	"github.com/ashore-mesh/ashore/internal/pmap"
)

// VIP is the pair of virtual IPs that is allocated for a host.
type VIP struct{ IPv4, IPv6 netip.Addr }

// VIPs holds the allocated virtual IPs by host.
type VIPs = pmap.Map[pmap.String, VIP]
