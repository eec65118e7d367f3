// Package envoytypes makes the messages of Envoy's configuration known to the program that imports
// it, so that the contents of an EnvoyFilter can be read by their "@type".
package envoytypes
