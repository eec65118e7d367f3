package xds

import (
	"sync"

	"github.com/ashore-mesh/ashore/registry"
)

// member is a workload that is registered here. The streams of a proxy share it, and its session:
// a proxy that reconnects has two for a while.
type member struct {
	key     registry.RegistrationKey
	session string
	streams int // guarded by members.mu
}

// members are the registered workloads. The zero value has none. Safe for concurrent use.
type members struct {
	mu  sync.Mutex
	all map[registry.RegistrationKey]*member // guarded by mu
}

// join adds a stream to a workload, which gets the session if it has none.
func (x *members) join(key registry.RegistrationKey, session string) *member {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.all[key]
	if m == nil {
		m = &member{key: key, session: session}
		if x.all == nil {
			x.all = map[registry.RegistrationKey]*member{}
		}
		x.all[key] = m
	}
	m.streams++
	return m
}

// leave removes a stream from a workload. last means that the session is over.
func (x *members) leave(m *member) (last bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m.streams--; m.streams == 0 {
		delete(x.all, m.key)
	}
	return m.streams == 0
}
