// Package examples runs the folders of examples/ with real Envoys, and checks what their README
// files promise. Each runs on its own loopback network, with the example's files unchanged.
package examples
