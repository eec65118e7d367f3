package registry

import (
	"context"
	"errors"
)

// ErrSession means that another session has registered the workload since, or that it is not
// registered any more.
var ErrSession = errors.New("another stream speaks for the workload by now")

// ErrTooLarge means that a registration is larger than MaxRegistration.
var ErrTooLarge = errors.New("too large")

// MaxRegistration bounds a registration without its health, in bytes of JSON.
const MaxRegistration = 48 << 10

// Runtime keeps the workloads that are registered, and their health. Memory is for a single machine,
// package shared for several replicas. registry/runtimetest tests what both promise. Safe for
// concurrent use.
//
// A registration lasts while its proxy is connected to any replica, and for the length of its lease
// after that, so that the proxy can reconnect, to another replica if need be.
type Runtime interface {
	// Registrations are the current ones. It does not wait.
	Registrations() Registrations
	// Watch sends after Registrations changed, until ctx ends. Several changes may be one send. The
	// channel is never closed.
	Watch(ctx context.Context) <-chan struct{}
	// Connect registers the workload for r.Session, and replaces any former session. Created and
	// Health stay if the identity is the same. Connect sets Replica and all times; r must not be
	// changed afterwards. Errors: ErrTooLarge.
	Connect(ctx context.Context, r Registration) error
	// Report sets the health of the workload. Errors: ErrSession.
	Report(ctx context.Context, key RegistrationKey, session string, h Report) error
	// Disconnect ends the session. The registration ends after the grace period that the
	// implementation was configured with. Errors: ErrSession.
	Disconnect(ctx context.Context, key RegistrationKey, session string) error
	// Remove ends a registration at once. An empty session means that of a workload whose proxy is
	// disconnected. Errors: ErrSession.
	Remove(ctx context.Context, key RegistrationKey, session string) error
}
