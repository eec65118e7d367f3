package xds

import (
	"context"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// The reasons why a proxy does not get a secret that exists.
const (
	noIdentity     = "no identity"
	otherNamespace = "other namespace"
	noAccess       = "no access"
	notUsed        = "not used"
)

// admitSecrets finds out whether a gateway may have restricted secrets. Without an answer it may not,
// until the answer comes: an Envoy keeps the secrets that it has meanwhile.
func (st *stream) admitSecrets(ctx context.Context, p *proxy) {
	ask, id := st.server.cfg.MayReadSecrets, st.who.Identity
	if ask == nil || p.Type != push.Router || !p.Identity {
		return
	}
	may, err := ask(ctx, id)
	if err == nil {
		p.ReadsSecrets = may
		return
	}
	st.logLine(hclog.Warn,
		"it is not known whether the gateway may have Secrets of the cluster; it gets none until it is",
		"proxy", p.ID, "identity", id, "error", err)
	answer := make(chan bool, 1)
	st.secretAccess = answer
	go func() {
		for task.Sleep(ctx, st.server.cfg.AccessRetry) {
			if may, err := ask(ctx, id); err == nil {
				answer <- may
				return
			}
		}
	}()
}

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
	_, exists := all.Namespace(st.proxy.Namespace, true).Resource(resource)
	_, open := all.Namespace(st.proxy.Namespace, st.proxy.ReadsSecrets).Resource(resource)
	switch {
	case !st.proxy.Identity && len(all.Having(resource)) > 0:
		return noIdentity
	case exists && namespace == st.proxy.Namespace && !open:
		return noAccess
	case exists && namespace == st.proxy.Namespace:
		return notUsed
	case len(all.Having(resource)) > 0:
		return otherNamespace
	}
	return ""
}
