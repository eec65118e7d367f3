package filestore

import "time"

// pending are files that changed and are left alone until they have settled.
type pending struct {
	settle  time.Duration
	due     map[string]time.Time
	first   map[string]time.Time // when the waiting began
	removal map[string]bool      // those that seem to be deleted
	removed time.Time            // when all of removal is due; overrides due
	next    time.Time            // nothing is due before; zero: nothing is waiting
}

// touch notes a change of a file; the quiet time starts anew. The quiet time of deletions is one for all:
// a folder that is deleted loses its files one by one, and is then not a folder without files.
func (p *pending) touch(name string, removed bool, now time.Time) {
	if _, waiting := p.due[name]; !waiting {
		p.first[name] = now
	}
	p.at(name, now.Add(p.settle))
	if removed {
		p.removal[name], p.removed = true, p.due[name]
	} else {
		delete(p.removal, name)
	}
}

// at has a name be due at a time.
func (p *pending) at(name string, at time.Time) {
	p.due[name] = at
	if p.next.IsZero() || at.Before(p.next) {
		p.next = at
	}
}

func (p *pending) drop(name string) {
	delete(p.due, name)
	delete(p.first, name)
	delete(p.removal, name)
}

// wait is the time until a file may have settled.
func (p *pending) wait(now time.Time) time.Duration {
	if p.next.IsZero() {
		return time.Hour
	}
	return max(p.next.Sub(now), 0)
}

// take removes the files that have settled, and returns since when each was waiting.
func (p *pending) take(now time.Time) map[string]time.Time {
	out := map[string]time.Time{}
	p.next = time.Time{}
	for name, at := range p.due {
		if p.removal[name] {
			at = p.removed
		}
		if at.After(now) {
			p.at(name, at)
			continue
		}
		out[name] = p.first[name]
		p.drop(name)
	}
	return out
}
