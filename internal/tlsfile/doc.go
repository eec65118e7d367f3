// Package tlsfile reads the certificates and keys with which a client connects.
package tlsfile
