package route

import (
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	previousprioritiesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// The retry policy of routes that do not set their own, or not every part of it.
// Source: Istio; "503" stays out of it, since such a request may have had an effect.
const (
	defaultRetries      = 2
	defaultRetryOn      = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"
	hostSelectionTries  = 5
	retriableStatus     = "retriable-status-codes"
	priorityUpdateEvery = 2
)

// retryPolicy says when a request is tried again; nil: never. A nil p is Istio's default. Hashed
// requests are not kept away from the endpoint that failed: the hash decides where they belong.
// Source: istio.io, HTTPRetry.
func retryPolicy(p *networking.HTTPRetry, hashed bool) *routev3.RetryPolicy {
	out := &routev3.RetryPolicy{
		NumRetries:                    wrapperspb.UInt32(defaultRetries),
		RetryOn:                       defaultRetryOn,
		HostSelectionRetryMaxAttempts: hostSelectionTries,
	}
	avoidPrevious := !hashed
	if p != nil {
		if p.Attempts <= 0 {
			return nil
		}
		out.NumRetries = wrapperspb.UInt32(uint32(p.Attempts))
		out.PerTryTimeout = p.PerTryTimeout
		if p.RetryOn != "" {
			out.RetryOn, out.RetriableStatusCodes = parseRetryOn(p.RetryOn)
		}
		if p.Backoff != nil {
			out.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: p.Backoff}
		}
		if p.RetryIgnorePreviousHosts != nil {
			avoidPrevious = p.RetryIgnorePreviousHosts.Value
		}
		if p.RetryRemoteLocalities.GetValue() {
			out.RetryPriority = remoteLocalities()
		}
	}
	if avoidPrevious {
		out.RetryHostPredicate = []*routev3.RetryPolicy_RetryHostPredicate{{
			Name:       "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: envoy.Packed(&previoushostsv3.PreviousHostsPredicate{})},
		}}
	}
	return out
}

// remoteLocalities tries again in other localities than before.
func remoteLocalities() *routev3.RetryPolicy_RetryPriority {
	return &routev3.RetryPolicy_RetryPriority{
		Name: "envoy.retry_priorities.previous_priorities",
		ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{
			TypedConfig: envoy.Packed(&previousprioritiesv3.PreviousPrioritiesConfig{UpdateFrequency: priorityUpdateEvery}),
		},
	}
}

// parseRetryOn splits Istio's list of conditions, in which a status code may stand among Envoy's
// names.
func parseRetryOn(list string) (conditions string, codes []uint32) {
	var names []string
	for part := range strings.SplitSeq(list, ",") {
		part = strings.TrimSpace(part)
		if code, err := strconv.ParseUint(part, 10, 32); err == nil && code >= 100 && code < 600 {
			codes = append(codes, uint32(code))
		} else if part != "" {
			names = append(names, part)
		}
	}
	conditions = strings.Join(names, ",")
	if len(codes) > 0 && !strings.Contains(conditions, retriableStatus) {
		conditions = strings.TrimPrefix(conditions+","+retriableStatus, ",")
	}
	return conditions, codes
}
