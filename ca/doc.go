// Package ca turns a proven identity into a certificate.
//
// A Signer signs. What it signs is made from the authenticated identity alone: of a request it
// takes the public key and nothing else, and what was signed is read again and compared with what
// was meant before it leaves.
//
// A Manager has the Signer and the Bundle of roots of today: a root and an intermediate of its own,
// or what an operator plugged in. It renews them and the control plane's own certificate, and leads
// a rotation of the root on, whose steps are a function of State, Facts and time. Keys stay in its
// folder; what replicas share are roots and states.
//
// A Server answers those who ask for certificates. An Attestor says who they are: by a join token,
// by the certificate that they have, by a JWT. The Ledger remembers workloads, their keys and
// certificates, tokens and revocations, and a PeerVerifier says by it whom to believe.
package ca
