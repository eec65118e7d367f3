// Package dnsname holds the one rule for names of DNS among settings: small letters, so that names
// can be compared.
package dnsname
