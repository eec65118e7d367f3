package registry

import (
	"net/netip"

	"github.com/ashore-mesh/ashore/internal/pmap"
)

// VIP is the pair of virtual addresses that is allocated for a host.
type VIP struct{ IPv4, IPv6 netip.Addr }

// VIPs are the allocated virtual addresses by host.
type VIPs = pmap.Map[pmap.String, VIP]
