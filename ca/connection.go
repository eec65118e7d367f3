package ca

import (
	"cmp"
	"time"
)

// Connections bounds how long peers use one connection for requests. Envoy checks a certificate only
// when a connection begins. A connection continues after its certificate has expired, so until it
// ends a revocation has to name that certificate.
type Connections struct {
	// Age is how old a connection becomes before peers accept no further request on it. Zero:
	// connections end with their certificates.
	Age time.Duration
	// Idle is how long a connection stays open without a request.
	Idle time.Duration
}

const (
	// minAge is the least Age, because opening a connection costs.
	minAge = 10 * time.Minute
	// maxIdle is Envoy's default.
	maxIdle = time.Hour
	// drainSlack is the time from the age of a connection to its end, without a request that goes on.
	// Source: Envoy's drain_timeout, 5s.
	drainSlack = time.Minute
	// lateClock is how long peers with late clocks may accept a certificate that has expired.
	lateClock = 5 * time.Minute
)

// BoundConnections returns the bounds for certificates with a validity; zero means 24h.
func BoundConnections(validity time.Duration) Connections {
	age := max(cmp.Or(validity, defaultValidity), minAge)
	return Connections{Age: age, Idle: min(age, maxIdle)}
}

// outlive is how long after a certificate has expired a connection that began with it may be used. A
// request that goes on all that time does not count: it was authorized when it began.
func (c Connections) outlive() time.Duration {
	if c.Age == 0 {
		return lateClock
	}
	return lateClock + c.Age + c.Idle + drainSlack
}
