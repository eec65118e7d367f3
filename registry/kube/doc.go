// Package kube connects ashored with clusters of Kubernetes.
//
// A Cluster is one API server and how to reach it. A kubeconfig that cannot be used is like an API
// server that does not answer: requests fail, and are tried again. Watch lists and watches one kind of
// object, and reconnects after failures. Lead runs tasks that only one replica may run in a cluster.
//
// Everything else is in the packages below: services has Services and Pods as a registry, crd has
// Istio's objects as a source of configuration, and identity has tokens, certificates and Secrets.
// Only these packages use client-go.
package kube
