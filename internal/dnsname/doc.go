// Package dnsname checks DNS names in settings. They are in lower case, so that they can be
// compared.
package dnsname
