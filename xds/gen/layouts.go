package gen

import (
	"net/netip"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
)

// layouts makes the layouts of proxies, and remembers them: listeners and routes are made from the
// same one.
type layouts struct {
	groups    intern.Lists[egressGroup]
	servers   intern.Lists[gatewayServer]
	outbounds *memo.Func[outboundIn, outboundLayout]
	gateways  *memo.Func[gatewayIn, gatewayLayout]
}

func newLayouts() *layouts {
	return &layouts{outbounds: memo.New(layOutOutbound), gateways: memo.New(layOutGateways)}
}

// outbound is that of a sidecar's outbound side.
func (l *layouts) outbound(sc *push.Scope) *outboundLayout {
	return l.outbounds.Get(outboundInOf(&l.groups, sc))
}

// gateway is that of a router.
func (l *layouts) gateway(sc *push.Scope) *gatewayLayout {
	return l.gateways.Get(gatewayInOf(&l.servers, sc))
}

// subnets are those to which a client of the target must have connected; none: any.
func (t outboundTarget) subnets() []netip.Prefix {
	if !t.subnet.IsValid() {
		return nil
	}
	return []netip.Prefix{t.subnet}
}
