package cluster

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
)

// applyOutliers makes Envoy eject endpoints that fail, by counting errors only: ejection by success
// rate is off.
// Source: istio.io, OutlierDetection.
func applyOutliers(c *clusterv3.Cluster, h *upstreamHTTP, o *networking.OutlierDetection) {
	if o == nil {
		return
	}
	to := &clusterv3.OutlierDetection{
		EnforcingSuccessRate:           wrapperspb.UInt32(0),
		Interval:                       o.Interval,
		BaseEjectionTime:               o.BaseEjectionTime,
		SplitExternalLocalOriginErrors: o.SplitExternalLocalOriginErrors,
	}
	if n := o.Consecutive_5XxErrors; n != nil {
		to.Consecutive_5Xx, to.EnforcingConsecutive_5Xx = wrapperspb.UInt32(n.Value), enforced(n.Value)
	}
	if n := o.ConsecutiveGatewayErrors; n != nil {
		to.ConsecutiveGatewayFailure, to.EnforcingConsecutiveGatewayFailure = wrapperspb.UInt32(n.Value), enforced(n.Value)
	}
	if n := o.ConsecutiveErrors; n > 0 && o.Consecutive_5XxErrors == nil && o.ConsecutiveGatewayErrors == nil { //nolint:staticcheck // the field that the two replaced
		to.ConsecutiveGatewayFailure, to.EnforcingConsecutiveGatewayFailure = wrapperspb.UInt32(uint32(n)), enforced(uint32(n))
		to.EnforcingConsecutive_5Xx = enforced(0)
	}
	if o.MaxEjectionPercent > 0 {
		to.MaxEjectionPercent = wrapperspb.UInt32(uint32(o.MaxEjectionPercent))
	}
	if o.SplitExternalLocalOriginErrors {
		to.EnforcingLocalOriginSuccessRate = wrapperspb.UInt32(0)
		if n := o.ConsecutiveLocalOriginFailures.GetValue(); n > 0 {
			to.ConsecutiveLocalOriginFailure, to.EnforcingConsecutiveLocalOriginFailure = wrapperspb.UInt32(n), enforced(n)
		}
	}
	c.OutlierDetection = to
	// Envoy's own threshold is 50 percent: in small services half of the endpoints would be enough
	// to send traffic to all of them, the ejected ones too.
	commonBalancer(c).HealthyPanicThreshold = &typev3.Percent{Value: float64(max(o.MinHealthPercent, 0))}
	h.errorCodes(o.OutlierDetectionHttpErrorCodes)
}

// enforced is how likely, in percent, an endpoint is ejected after n errors: never after none.
func enforced(n uint32) *wrapperspb.UInt32Value {
	if n == 0 {
		return wrapperspb.UInt32(0)
	}
	return wrapperspb.UInt32(100)
}
