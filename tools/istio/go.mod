// Istio, whose dashboards a test reads. It is for tests only, and never built.
module github.com/ashore-mesh/ashore/tools/istio

go 1.26.0

require istio.io/istio v0.0.0-20260916195427-190ae921b848
