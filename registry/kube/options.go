package kube

import (
	"github.com/ashore-mesh/ashore/internal/dnsname"
)

// Options are the options of a source of kind kubernetes.
type Options struct {
	// Kubeconfig is a file with the address of the API server and credentials. Default: the service
	// account of the Pod in which ashored runs.
	Kubeconfig string `yaml:"kubeconfig"`
	// Context is a context of Kubeconfig. Default: its current context.
	Context string `yaml:"context"`
	// Cluster is the ID of the cluster, as proxies send it. Default: the name of the source.
	Cluster string `yaml:"cluster"`
	// Network is the network of the Pods. The label topology.istio.io/network of a Pod takes
	// precedence, then that of Namespace. Default: none.
	Network string `yaml:"network"`
	// Domain is the DNS domain of the cluster. Default cluster.local.
	Domain string `yaml:"domain"`
	// Namespace is where ashored keeps its Lease. Default istio-system.
	Namespace string `yaml:"namespace"`
	// Services makes the Services of the cluster services of the mesh. Default true.
	Services bool `yaml:"services"`
	// Configuration makes Istio's objects in the cluster configuration of the mesh. Default true.
	Configuration bool `yaml:"configuration"`
}

// DefaultOptions returns the options of a source that sets none.
func DefaultOptions() Options {
	return Options{Domain: "cluster.local", Namespace: "istio-system", Services: true, Configuration: true}
}

// Check reports each option that is wrong.
func (o Options) Check(wrong func(option, format string, args ...any)) {
	if o.Kubeconfig == "" && o.Context != "" {
		wrong("context", "%q is a context of a kubeconfig, and the option kubeconfig is not set: set it", o.Context)
	}
	if !dnsname.Valid(o.Domain) {
		wrong("domain", "%q is not a DNS name: want one such as cluster.local", o.Domain)
	}
	if !dnsname.ValidLabel(o.Namespace) {
		wrong("namespace", "%q is not the name of a namespace: want one such as istio-system", o.Namespace)
	}
	if !o.Services && !o.Configuration {
		wrong("services", "is false, and so is configuration: set one of them, or remove the source")
	}
}
