// Package examples runs the folders of examples/ with real Envoys and asks for what their README
// files promise. Each runs on a loopback network of its own, with the example's files and proxies
// otherwise as they are.
package examples
