// Package services supplies the Services of a cluster of Kubernetes as services of the mesh.
//
// A Source watches Services, EndpointSlices, Pods, Nodes and Namespaces. Each Service is a group.
// The type objects has no I/O: it holds what is used of the cluster's objects, and turns each Service
// into a registry.Service with its endpoints, as Istio does.
//
// A batch is sent only while all kinds of objects can be read. If one kind has to be listed again,
// all are, and the next batch is Full. So a batch never mixes objects from before and after the API
// server lost its data.
package services
