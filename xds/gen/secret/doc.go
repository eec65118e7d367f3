// Package secret makes the secrets that name files of certificates and authorities on the proxy's
// machine. No secret holds a key.
package secret
