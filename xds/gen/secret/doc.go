// Package secret makes the secrets that clusters and listeners name: those that credentialName names,
// and those that name files of certificates and authorities on the proxy's machine.
package secret
