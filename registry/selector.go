package registry

import "cmp"

// ObjectKey identifies an object of one kind by its namespace and name.
type ObjectKey struct{ Namespace, Name string }

// Compare orders by namespace, then name.
func (k ObjectKey) Compare(o ObjectKey) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// String returns "namespace/name".
func (k ObjectKey) String() string { return k.Namespace + "/" + k.Name }

// Selector is a service that selects workloads of its namespace by their labels. Immutable.
type Selector struct {
	// Service is the service as its source supplies it.
	Service *Service
	// Labels are those that a workload needs. Not empty.
	Labels map[string]string
	// Targets holds the names of target ports, by the name of the service port. A workload serves
	// such a port at the number that it has for the name. Nil if all target ports are numbers.
	Targets map[string]string
}
