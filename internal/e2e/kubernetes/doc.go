// Package kubernetes tests ashored with real clusters of Kubernetes. A kubelet of the test runs Pods
// in network namespaces.
package kubernetes
