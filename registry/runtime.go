package registry

import (
	"context"
	"errors"
)

// ErrSession means that another session has registered the workload, or that the workload is no
// longer registered.
var ErrSession = errors.New("the workload is registered by another stream, or not registered")

// ErrTooLarge means that a registration is larger than MaxRegistration.
var ErrTooLarge = errors.New("too large")

// MaxRegistration is the greatest size of a registration without its health, in bytes of JSON.
const MaxRegistration = 48 << 10

// Runtime stores the registered workloads and their health. Package shared implements it. Safe for
// concurrent use.
//
// A registration lasts while its proxy is connected to any replica, and for a grace period
// afterwards. So the proxy can reconnect to any replica.
type Runtime interface {
	// Registrations returns the current registrations. It does not wait.
	Registrations() Registrations
	// Watch returns a channel that receives after Registrations changed, until ctx ends. It may
	// receive once for several changes. The channel is never closed.
	Watch(ctx context.Context) <-chan struct{}
	// Connect registers the workload for r.Session, and replaces the previous session. Created and
	// Health stay if the identity is the same. Connect sets Replica and all times. The caller must
	// not change r afterwards. It returns ErrTooLarge if r is larger than MaxRegistration.
	Connect(ctx context.Context, r Registration) error
	// Report sets the health of the workload. It returns ErrSession if session is not the current
	// one.
	Report(ctx context.Context, key RegistrationKey, session string, h Report) error
	// Disconnect ends the session. The registration ends after the configured grace period. It
	// returns ErrSession if session is not the current one.
	Disconnect(ctx context.Context, key RegistrationKey, session string) error
	// Remove ends a registration at once. The session is empty if the proxy is disconnected. It
	// returns ErrSession if session is not the current one.
	Remove(ctx context.Context, key RegistrationKey, session string) error
}
