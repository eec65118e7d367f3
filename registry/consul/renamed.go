package consul

import "slices"

// instanceID is what Consul knows an instance by. It has one service, and what is registered with the ID of another one takes
// that one's place, under another name as well. Of the service that it leaves Consul then tells nobody that it has changed: the
// index of that stays as it was.
// Source: Consul, agent/consul/state/catalog.go (ensureServiceTxn).
type instanceID struct{ node, id string }

// bearer is the service that has an instance, by the answer with this index. Of two answers that have one instance, of two services,
// that is true which has the higher index: a registration raises that of the service that it is of, and an answer from before it has
// a lower one.
type bearer struct {
	service string
	index   uint64
}

// claim notes which instances a service has, by an answer that is another than the last, and has those services asked for that had some
// of them; or the service itself, where its answer is the older one. An answer has nobody asked for twice: what comes back as it was
// claims nothing. The goroutine of keeper.loop calls it.
func (sc *scope) claim(s *service, was, is converted) {
	if was.index == is.index && slices.Equal(was.ids, is.ids) {
		return
	}
	for _, id := range was.ids {
		if sc.bearers[id].service == s.name {
			delete(sc.bearers, id)
		}
	}
	for _, id := range is.ids {
		b := sc.bearers[id]
		switch former := sc.services[b.service]; {
		case former == nil || former == s:
		case b.index < is.index, b.index == is.index && !slices.Contains(was.ids, id):
			former.askAnew()
		case b.index > is.index:
			s.askAnew()
			continue
		default: // of one index, and the other one came later
			continue
		}
		sc.bearers[id] = bearer{s.name, is.index}
	}
}

// recount has no service bear an instance by an index that Consul has not come to, which counts anew. The goroutine of keeper.loop
// calls it.
func (sc *scope) recount(index uint64) {
	for id, b := range sc.bearers {
		if b.index > index {
			sc.bearers[id] = bearer{service: b.service}
		}
	}
}

// askAnew has a service asked for, of the leader: what it says now counts, whatever its index.
func (s *service) askAnew() {
	s.pokes.poke(true, ofLeader)
	s.stop.interrupt()
}
