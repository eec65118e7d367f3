// Package ca turns a proven identity into a certificate.
//
// A Signer signs. What it signs is made from the authenticated identity alone: of a request it
// takes the public key and nothing else, and what was signed is read again and compared with what
// was meant before it leaves.
//
// A Manager has the Signer and the Bundle of roots in use: a root and an intermediate of its own,
// or what an operator plugged in. It renews them and the control plane's own certificate, and leads
// a rotation of the root on, whose steps are a function of State, Dependents and time. Keys stay in its
// folder; replicas share roots and states, and request intermediates from the replica that has the
// root's key.
//
// A Server answers those who ask for certificates. They prove who they are by a join token, by the
// certificate that they have, or by a JWT. The Ledger has tokens, revocations and an index of
// workloads. Each subject has one Revocation with an epoch, in the store and in a local file; the
// higher epoch counts. What the index does not know is allowed: losing it locks no workload out.
package ca
