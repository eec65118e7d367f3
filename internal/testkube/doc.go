// Package testkube runs real clusters of Kubernetes for tests: etcd, the API server and the
// controllers, with RBAC. There is no scheduler and no kubelet, so Pods run only if a test runs them.
package testkube
