package registry

import (
	"context"
	"errors"
)

// ErrSession says that another session speaks for the workload by now, or none: it is not
// registered any more.
var ErrSession = errors.New("another stream speaks for the workload by now")

// ErrTooLarge says that what a proxy says of its workload is larger than MaxRegistration.
var ErrTooLarge = errors.New("too large")

// MaxRegistration bounds what a proxy says of its workload, its labels above all, in bytes of JSON.
const MaxRegistration = 48 << 10

// Runtime is what replicas share besides configuration: which workloads are registered, how they
// are, and for how long that counts. One implementation is for a single machine, others are for
// many; registry/runtimetest is what all of them promise. Safe for concurrent use.
//
// A registration counts while its proxy is connected to any replica, and a while longer (its
// lease): after a proxy has gone, so that it can connect anew; after a replica has died, so that
// its proxies can turn to another.
type Runtime interface {
	// Registrations are all that count at this moment. It does not wait.
	Registrations() Registrations
	// Watch tells, until ctx ends, after Registrations has changed. Several changes may be told at
	// once. The channel is never closed.
	Watch(ctx context.Context) <-chan struct{}
	// Connect takes in that r.Session speaks for the workload from now on. It replaces what was
	// known of the workload but for when it registered first and how it was, which counts until the
	// session reports; another identity inherits neither. Replica, ConnectedAt and the like are set
	// by Connect. r must not be changed afterwards.
	// Errors: ErrTooLarge, which is the proxy's fault and the same on every replica.
	Connect(ctx context.Context, r Registration) error
	// Report takes in how the workload is. Errors: ErrSession.
	Report(ctx context.Context, key RegistrationKey, session string, h Report) error
	// Disconnect takes in that the session has ended: the registration counts for the grace that
	// the implementation was made with. Errors: ErrSession.
	Disconnect(ctx context.Context, key RegistrationKey, session string) error
	// Remove ends a registration at once; an empty session is that of a workload whose proxy has
	// gone. Errors: ErrSession.
	Remove(ctx context.Context, key RegistrationKey, session string) error
}
