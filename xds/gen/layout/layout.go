package layout

import (
	"net/netip"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
)

// Layouts makes the layouts of proxies, and remembers them: listeners and routes are made from the
// same one.
type Layouts struct {
	groups    intern.Lists[egressGroup]
	servers   intern.Lists[GatewayServer]
	outbounds *memo.Func[outboundIn, Outbound]
	gateways  *memo.Func[gatewayIn, Gateway]
}

// New makes a Layouts.
func New() *Layouts {
	return &Layouts{outbounds: memo.New(layOutOutbound), gateways: memo.New(layOutGateways)}
}

// Outbound is that of a sidecar's outbound side.
func (l *Layouts) Outbound(sc *push.Scope) *Outbound {
	return l.outbounds.Get(outboundInOf(&l.groups, sc))
}

// Gateway is that of a router.
func (l *Layouts) Gateway(sc *push.Scope) *Gateway {
	return l.gateways.Get(gatewayInOf(&l.servers, sc))
}

// Subnets are those to which a client of the target must have connected; none: any.
func (t OutboundTarget) Subnets() []netip.Prefix {
	if !t.Subnet.IsValid() {
		return nil
	}
	return []netip.Prefix{t.Subnet}
}
