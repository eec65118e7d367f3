package route

import (
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
)

// The host of a request is not a header to Envoy: setting it is a rewrite, and what is written with
// the route goes before what is written with its destination.
func TestAuthorityByHeader(t *testing.T) {
	t.Parallel()
	set := func(name, value string) *networking.Headers {
		return &networking.Headers{Request: &networking.Headers_HeaderOperations{Set: map[string]string{name: value},
			Remove: []string{"HOST", ":path", "x"}}}
	}
	rule := &networking.HTTPRoute{
		Headers: set(":authority", "second.x"),
		Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "one.x"},
			Headers: set("Host", "third.x")}},
	}
	for _, want := range []string{"first.x", "second.x", "third.x"} {
		switch want {
		case "first.x":
			rule.Rewrite = &networking.HTTPRewrite{Authority: want}
		case "second.x":
			rule.Rewrite = nil
		default:
			rule.Headers = nil
		}
		vs := &push.VirtualService{Object: &config.Object{}, Spec: &networking.VirtualService{Http: []*networking.HTTPRoute{rule}}}
		got := newRouteBuilder(ruleSpec{vs: vs}).route(rule, nil)
		if a := got.GetRoute().GetHostRewriteLiteral(); a != want {
			t.Errorf("authority: got %q, want %q", a, want)
		}
		if len(got.RequestHeadersToAdd) != 0 {
			t.Errorf("headers that Envoy refuses to edit: %v", got.RequestHeadersToAdd)
		}
		for _, h := range got.RequestHeadersToRemove {
			if h != "x" {
				t.Errorf("removes %q", h)
			}
		}
	}
}

// Hashed requests are not kept away from the endpoint that failed.
func TestDefaultRetries(t *testing.T) {
	t.Parallel()
	if p := retryPolicy(nil, false); p.NumRetries.Value != 2 || len(p.RetryHostPredicate) != 1 {
		t.Errorf("default: got %v", p)
	}
	if p := retryPolicy(nil, true); len(p.RetryHostPredicate) != 0 {
		t.Errorf("hashed requests avoid an endpoint: %v", p)
	}
}
