package access

import (
	"fmt"
	"strings"
	"testing"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	mesh "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// judgedFor refuses what the two filters of CUSTOM policies together let through without a
// question.
func judgedFor(custom, ask proto.Message) error {
	rules := custom.(*httprbacv3.RBAC).ShadowRules
	switch f := ask.(type) {
	case *httprbacv3.RBAC:
		if f.Rules == nil || f.Rules.Action != rbacv3.RBAC_DENY || len(f.Rules.Policies) == 0 {
			return fmt.Errorf("nobody is asked, and nothing refuses")
		}
	case *httpauthzv3.ExtAuthz:
		prefix := f.GetFilterEnabledMetadata().GetValue().GetStringMatch().GetPrefix()
		for name := range rules.GetPolicies() {
			if strings.HasPrefix(name, prefix) {
				return nil
			}
		}
		return fmt.Errorf("%q is waited for, and %v told", prefix, rules)
	}
	return nil
}

// The two filters of CUSTOM policies may arrive one after the other, and far apart when one waits
// for its cluster: when the provider appears, changes or goes, there is no moment at which nobody
// judges.
func TestAskingHasNoGap(t *testing.T) {
	t.Parallel()
	policy := &config.Object{Key: config.Key{Namespace: "shop", Name: "ask"}, Spec: &security.AuthorizationPolicy{
		Action: security.AuthorizationPolicy_CUSTOM, Rules: []*security.Rule{{}},
		ActionDetail: &security.AuthorizationPolicy_Provider{Provider: &security.AuthorizationPolicy_ExtensionProvider{Name: "judge"}},
	}}
	provider := func(name string) askProvider {
		return askProvider{cluster: name, provider: &mesh.MeshConfig_ExtensionProvider{Name: name,
			Provider: &mesh.MeshConfig_ExtensionProvider_EnvoyExtAuthzHttp{
				EnvoyExtAuthzHttp: &mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider{},
			}}}
	}
	states := map[string]askProvider{"nobody": {}, "judge": provider("judge"), "other": provider("other")}
	in := extensionsIn{policies: (&intern.Lists[*config.Object]{}).Of([]*config.Object{policy})}
	for a, first := range states {
		for b, second := range states {
			in.ask = first
			custom, cluster := in.filter(rbacScope{}, filterCustom)
			if cluster != "" {
				t.Errorf("%s: %s would wait for the cluster %s", a, filterCustom, cluster)
			}
			in.ask = second
			ask, cluster := in.filter(rbacScope{}, FilterAsk)
			if cluster != second.cluster {
				t.Errorf("%s: %s asks the cluster %q, want %q", b, FilterAsk, cluster, second.cluster)
			}
			if err := judgedFor(custom, ask); err != nil {
				t.Errorf("%s for %s, %s for %s: %v", filterCustom, a, FilterAsk, b, err)
			}
		}
	}
}

// Filters that may take over from one another name each other. What revocations refuse waits for
// none.
func TestTakers(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		filterRevoked:                 nil,
		filterRevoked + OfConnections: nil,
		FilterForeign:                 nil,
		filterAudit:                   nil,
		filterDeny:                    {filterTokens, filterCustom, FilterAsk, filterAllow},
		filterTokens:                  {filterCustom, FilterAsk, filterDeny, filterAllow},
		FilterAsk + OfConnections: {filterCustom + OfConnections, filterDeny + OfConnections,
			filterAllow + OfConnections},
	}
	for name, want := range tests {
		var got []string
		for _, ref := range newFilter(name, "", nil).Refs {
			if ref.TypeURL != resource.ExtensionConfigType {
				t.Errorf("%s names %v", name, ref)
			}
			got = append(got, ref.Name)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s names (-want +got):\n%s", name, d)
		}
	}
}
