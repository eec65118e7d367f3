// Package ca turns a proven identity into a certificate.
//
// An Issuer signs. What it signs is made from the authenticated identity alone: of a request it takes the public key and
// nothing else, and what was signed is read again and compared with what was meant before it leaves.
package ca
