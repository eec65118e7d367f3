package entry

import (
	"cmp"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry"
)

// Account is a service account: the identity of a workload within its trust domain.
type Account struct{ Namespace, Name string }

// String returns "namespace/name".
func (a Account) String() string { return a.Namespace + "/" + a.Name }

// AccountOf returns the service account of a WorkloadEntry, or of the workloads of a WorkloadGroup.
// If the object has none it is "default", as in Istio.
func AccountOf(o *config.Object) Account {
	if g, ok := o.Spec.(*networking.WorkloadGroup); ok {
		return newAccount(o.Namespace, g.GetTemplate().GetServiceAccount())
	}
	return newAccount(o.Namespace, o.Spec.(*networking.WorkloadEntry).ServiceAccount)
}

func newAccount(namespace, name string) Account { return Account{namespace, cmp.Or(name, "default")} }

// authenticatedAs reports whether a workload has the identity of an account. Without authentication
// (--dev) every workload has.
func authenticatedAs(r *registry.Registration, account Account) bool {
	if r.Identity == "" {
		return true
	}
	id, err := spiffe.Parse(r.Identity)
	return err == nil && account == Account{id.Namespace, id.ServiceAccount}
}
