// Package testcert makes a certificate for servers that tests run on this machine.
package testcert
