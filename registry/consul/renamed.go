package consul

import "slices"

// instanceID is what Consul knows an instance by. It has one service, and what is registered with the ID of another one takes
// that one's place, under another name as well. Of the service that it leaves Consul then tells nobody that it has changed: the
// index of that stays as it was.
// Source: Consul, agent/consul/state/catalog.go (ensureServiceTxn).
type instanceID struct{ node, id string }

// claim notes which instances a service has, and has those services asked for that had some of them. The goroutine of
// keeper.loop calls it.
func (sc *scope) claim(s *service, was, is []instanceID) {
	if slices.Equal(was, is) {
		return
	}
	for _, id := range was {
		if sc.bearers[id] == s.name {
			delete(sc.bearers, id)
		}
	}
	for _, id := range is {
		if former := sc.services[sc.bearers[id]]; former != nil && former != s {
			former.pokes.poke(true, 1) // of any index, but of now
			former.stop.interrupt()
		}
		sc.bearers[id] = s.name
	}
}
