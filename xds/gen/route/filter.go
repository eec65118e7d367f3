package route

import (
	"math"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	faultcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// The HTTP filters that routes configure.
const (
	faultFilter = "envoy.filters.http.fault"
	corsFilter  = "envoy.filters.http.cors"
)

// routeFilters configures HTTP filters for one route; nil: none.
func routeFilters(r *networking.HTTPRoute) map[string]*anypb.Any {
	out := map[string]*anypb.Any{}
	if f := faultOf(r.Fault); f != nil {
		out[faultFilter] = envoy.Packed(f)
	}
	if r.CorsPolicy != nil {
		out[corsFilter] = envoy.Packed(corsOf(r.CorsPolicy))
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// faultOf makes some requests slow or fail; nil: none.
// Source: istio.io, HTTPFaultInjection; delay and abort are independent of one another.
func faultOf(f *networking.HTTPFaultInjection) *faultv3.HTTPFault {
	out := &faultv3.HTTPFault{Delay: delayOf(f.GetDelay()), Abort: abortOf(f.GetAbort())}
	if out.Delay == nil && out.Abort == nil {
		return nil
	}
	return out
}

func delayOf(d *networking.HTTPFaultInjection_Delay) *faultcommonv3.FaultDelay {
	fixed := d.GetFixedDelay()
	if fixed == nil {
		return nil
	}
	share := d.Percentage
	if share == nil {
		share = &networking.Percent{Value: float64(d.GetPercent())} //nolint:staticcheck // deprecated, not gone
	}
	return &faultcommonv3.FaultDelay{
		FaultDelaySecifier: &faultcommonv3.FaultDelay_FixedDelay{FixedDelay: fixed},
		Percentage:         fraction(share),
	}
}

func abortOf(a *networking.HTTPFaultInjection_Abort) *faultv3.FaultAbort {
	if a == nil {
		return nil
	}
	out := &faultv3.FaultAbort{Percentage: &typev3.FractionalPercent{}}
	if a.Percentage != nil {
		out.Percentage = fraction(a.Percentage)
	}
	switch e := a.ErrorType.(type) {
	case *networking.HTTPFaultInjection_Abort_HttpStatus:
		out.ErrorType = &faultv3.FaultAbort_HttpStatus{HttpStatus: uint32(e.HttpStatus)}
	case *networking.HTTPFaultInjection_Abort_GrpcStatus:
		code, ok := grpcStatus(e.GrpcStatus)
		if !ok {
			return nil
		}
		out.ErrorType = &faultv3.FaultAbort_GrpcStatus{GrpcStatus: uint32(code)}
	default:
		return nil
	}
	return out
}

// grpcStatus reads the name of a gRPC status ("UNAVAILABLE") or its number.
func grpcStatus(name string) (codes.Code, bool) {
	var c codes.Code
	if err := c.UnmarshalJSON([]byte(strconv.Quote(strings.ToUpper(name)))); err == nil {
		return c, true
	}
	if err := c.UnmarshalJSON([]byte(name)); err == nil {
		return c, true
	}
	return 0, false
}

// perMillion is the unit of shares.
const perMillion = 10_000

// fraction is a percentage in parts of a million, at most all; nil: all.
func fraction(p *networking.Percent) *typev3.FractionalPercent {
	value := 100.0
	if p != nil {
		value = min(100, max(0, p.Value))
	}
	if value == math.Trunc(value) {
		return &typev3.FractionalPercent{Numerator: uint32(value), Denominator: typev3.FractionalPercent_HUNDRED}
	}
	return &typev3.FractionalPercent{Numerator: uint32(math.Round(value * perMillion)),
		Denominator: typev3.FractionalPercent_MILLION}
}

// corsOf answers browsers that ask whether a page of another origin may call. Source: istio.io,
// CorsPolicy. Preflights of other origins are forwarded unless the policy says IGNORE.
func corsOf(c *networking.CorsPolicy) *corsv3.CorsPolicy {
	out := &corsv3.CorsPolicy{
		AllowMethods:                 strings.Join(c.AllowMethods, ","),
		AllowHeaders:                 strings.Join(c.AllowHeaders, ","),
		ExposeHeaders:                strings.Join(c.ExposeHeaders, ","),
		AllowCredentials:             c.AllowCredentials,
		FilterEnabled:                &corev3.RuntimeFractionalPercent{DefaultValue: fraction(nil)},
		ForwardNotMatchingPreflights: wrapperspb.Bool(c.UnmatchedPreflights != networking.CorsPolicy_IGNORE),
	}
	if c.MaxAge != nil {
		out.MaxAge = strconv.FormatInt(c.MaxAge.Seconds, 10)
	}
	for _, o := range c.AllowOrigins {
		out.AllowOriginStringMatch = append(out.AllowOriginStringMatch, envoy.StringMatcher(o))
	}
	if len(c.AllowOrigins) == 0 {
		for _, o := range c.GetAllowOrigin() { //nolint:staticcheck // deprecated, not gone
			out.AllowOriginStringMatch = append(out.AllowOriginStringMatch, originMatcher(o))
		}
	}
	return out
}

// originMatcher is an origin by its text; "*" is every origin.
func originMatcher(origin string) *matcherv3.StringMatcher {
	m := &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: origin}}
	if origin == "*" {
		m.MatchType = &networking.StringMatch_Regex{Regex: envoy.Everything}
	}
	return envoy.StringMatcher(m)
}
