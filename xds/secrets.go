package xds

import (
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// The reasons why a proxy does not get a secret that exists.
const (
	noIdentity     = "no identity"
	otherNamespace = "other namespace"
	notUsed        = "not used"
)

// noteSecrets counts, logs and audits each refused secret among the names that the proxy subscribes
// to now and that are not in before. The proxy gets the answer that the secret does not exist.
func (st *stream) noteSecrets(t *ads.Subscription, before *ads.Names) {
	for _, name := range t.Names().List() {
		if before.Has(name) || t.To.Get(name) != nil {
			continue
		}
		reason := st.secretRefusal(name)
		if reason == "" {
			continue
		}
		st.server.metrics.secrets.WithLabelValues(reason).Inc()
		st.logLine(hclog.Warn, "secret refused", "proxy", st.proxy.ID, "identity", st.who.Identity, "secret", name,
			"reason", reason)
		st.audit(audit.SecretRefuse, name, audit.Refused, reason)
	}
}

// secretRefusal returns why a proxy may not have a secret; empty if there is no such secret.
// Source: Istio, filterAuthorizedResources, which leaves out whether the proxy uses it.
func (st *stream) secretRefusal(name string) string {
	rest, ok := strings.CutPrefix(name, secret.ResourcePrefix)
	if !ok {
		return ""
	}
	namespace, short, named := strings.Cut(rest, "/")
	if !named {
		namespace, short = st.proxy.Namespace, rest
	}
	resource := secret.ResourcePrefix + short
	all := st.snap.context.Secrets()
	_, exists := all.Namespace(st.proxy.Namespace).Resource(resource)
	switch {
	case !st.proxy.Identity && len(all.Having(resource)) > 0:
		return noIdentity
	case exists && namespace == st.proxy.Namespace:
		return notUsed
	case len(all.Having(resource)) > 0:
		return otherNamespace
	}
	return ""
}
