// Package xdstest is the other end of discovery, for tests: a mesh made by hand in the place of the
// generator, and a fake Envoy over real gRPC that behaves as the real one does where it hurts.
package xdstest
