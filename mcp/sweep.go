package mcp

import (
	"slices"
	"time"
)

// sweep sees to what was not named.
func (t *taking) sweep(stream uint64) {
	l, then := t.at, t.now.Add(t.rules.emptyAfter)
	returned := l.emptied && len(t.word.items) > 0
	if returned {
		l.emptied = false
	}
	switch {
	case t.unread:
		t.stayAll()
		return
	case t.word.whole && len(t.word.items) == 0 && len(l.entries) > 0 && l.listed != stream:
		switch {
		case t.elsewhere(stream):
			if len(l.leaving) == 0 { // said again, it changes nothing
				t.leave(l, then)
			}
		case !l.emptied:
			l.emptied, l.since = true, t.now
			t.leave(l, t.believed(l))
		}
	case t.word.first || returned && !t.word.whole:
		t.leave(l, then)
	case t.word.whole:
		for name := range l.entries {
			if !t.seen[name] {
				t.remove(name)
			}
		}
	case t.stayed: // a first answer goes on: what is next may take as long
		leaveAll(l, then)
	}
}

// believed is when a server that came back with nothing of a listing is believed.
func (t *taking) believed(l *listing) time.Time {
	return t.now.Add(l.lapse.resume(t.now, t.rules.emptyAfter))
}

// elsewhere says that the server has listed objects of the kind under another name on a stream.
func (t *taking) elsewhere(stream uint64) bool {
	return t.rules.aliases && slices.ContainsFunc(t.kinds[t.at.kind.Kind], func(l *listing) bool { return l != t.at && l.listed == stream })
}

// leaveAll has everything of a listing leave at a time that leaves already.
func leaveAll(l *listing, at time.Time) {
	for name := range l.leaving {
		l.leaving[name] = at
	}
}

// leave has everything of a listing leave at a time that was not named.
func (t *taking) leave(l *listing, at time.Time) {
	for name := range l.entries {
		if !t.seen[name] {
			l.leaving[name] = at
		}
	}
}

// stays notes that the server has an entry.
func (t *taking) stays(name string) {
	if _, leaves := t.at.leaving[name]; leaves {
		t.stayed = true
		delete(t.at.leaving, name)
		t.changed[group{kind: t.at.kind.Kind, name: name}] = true
	}
}

// stayAll has nothing leave: any of it may be meant by what was refused.
func (t *taking) stayAll() {
	for name := range t.at.leaving {
		t.stays(name)
	}
	t.at.emptied = false
	t.at.lapse.forget()
}

// remove forgets an entry.
func (t *taking) remove(name string) {
	delete(t.at.leaving, name)
	if t.at.entries[name] == nil {
		return
	}
	t.drop(t.at, name)
	t.changed[group{kind: t.at.kind.Kind, name: name}] = true
}
