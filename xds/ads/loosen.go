package ads

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// loosens says whether an extension may let something through that it refused before, or tell
// others of less. Of a changed rule nobody knows: it may. Where nothing is known of before, nothing
// is given up.
func loosens(had, next *resource.Resource) bool {
	return had != nil && next.Beside(had, func() bool { return mayLoosen(had, next) })
}

// mayLoosen is loosens without memory.
func mayLoosen(had, next *resource.Resource) bool {
	before, judged := rulesOf(had)
	after, judges := rulesOf(next)
	switch {
	case !judged:
		return true
	case !judges:
		return before.enforced != nil
	case before.enforced == nil && after.enforced == nil:
		return loses(before.told, after.told)
	}
	return loses(before.enforced, after.enforced)
}

// loses says whether some of what rules refuse is not refused by others.
func loses(before, after *rbacv3.RBAC) bool {
	switch {
	case before == nil || before.Action == rbacv3.RBAC_LOG:
		return false
	case after == nil || after.Action != before.Action:
		return true
	case before.Action == rbacv3.RBAC_DENY:
		return !holdsAll(after, before)
	}
	return !holdsAll(before, after)
}

// holdsAll says whether every rule of part is one of all.
func holdsAll(all, part *rbacv3.RBAC) bool {
	for name, p := range part.Policies {
		if !proto.Equal(p, all.Policies[name]) {
			return false
		}
	}
	return true
}

// rules are those of a filter: what it enforces, and what it only tells others of; nil for none.
type rules struct{ enforced, told *rbacv3.RBAC }

// rulesOf are the rules of a filter of rules; not ok: it is another one, or cannot be read.
func rulesOf(r *resource.Resource) (out rules, ok bool) {
	var e corev3.TypedExtensionConfig
	if proto.Unmarshal(r.Body(), &e) != nil {
		return rules{}, false
	}
	var requests httprbacv3.RBAC
	var connections networkrbacv3.RBAC
	switch config := e.GetTypedConfig(); {
	case config.MessageIs(&requests):
		err := config.UnmarshalTo(&requests)
		return rules{requests.GetRules(), requests.GetShadowRules()}, err == nil
	case config.MessageIs(&connections):
		err := config.UnmarshalTo(&connections)
		return rules{connections.GetRules(), connections.GetShadowRules()}, err == nil
	}
	return rules{}, false
}
