package ca

import (
	"cmp"
	"time"
)

// Connections says how long peers use one connection for requests. Envoy looks at a certificate
// when a connection begins, and never again: a connection goes on when the certificate that it was
// opened with has ended, and until it ends itself a revocation has to name that certificate.
type Connections struct {
	// Age is after how long peers take no further request by it. Zero: connections end with their
	// certificates.
	Age time.Duration
	// Idle is how long one may be without a request. A request that ends the silence of an old
	// connection is its last one.
	Idle time.Duration
}

const (
	// minAge is the least that a connection may be used: opening one costs.
	minAge = 10 * time.Minute
	// maxIdle is Envoy's default.
	maxIdle = time.Hour
	// drainSlack is for what Envoy does between the age of a connection and its end, without a
	// request that goes on. Source: Envoy's drain_timeout, 5s.
	drainSlack = time.Minute
	// lateClock is for how long after its end a certificate still counts as one that peers may
	// take.
	lateClock = 5 * time.Minute
)

// BoundConnections is what fits certificates that live so long; zero stands for the default of
// Rules.
func BoundConnections(validity time.Duration) Connections {
	age := max(cmp.Or(validity, defaultValidity), minAge)
	return Connections{Age: age, Idle: min(age, maxIdle)}
}

// outlive is how long after the end of a certificate a connection may still be in use that was
// opened with it. A request that goes on all that time is not counted: nobody judges it anew.
func (c Connections) outlive() time.Duration {
	if c.Age == 0 {
		return lateClock
	}
	return lateClock + c.Age + c.Idle + drainSlack
}
