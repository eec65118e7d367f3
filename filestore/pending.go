package filestore

import "time"

// pending are files that changed and are left alone until they have settled.
type pending struct {
	settle  time.Duration
	due     map[string]time.Time
	first   map[string]time.Time // when the waiting began
	removal map[string]bool      // those that seem to be deleted
}

// touch notes a change of a file; the quiet time starts anew. The quiet time of deletions is one for all:
// a folder that is deleted loses its files one by one, and is then not a folder without files.
func (p *pending) touch(name string, removed bool, now time.Time) {
	at := now.Add(p.settle)
	if _, waiting := p.due[name]; !waiting {
		p.first[name] = now
	}
	p.due[name] = at
	if !removed {
		delete(p.removal, name)
		return
	}
	p.removal[name] = true
	for other := range p.removal {
		p.due[other] = at
	}
}

func (p *pending) drop(name string) {
	delete(p.due, name)
	delete(p.first, name)
	delete(p.removal, name)
}

// wait is the time until the next file has settled.
func (p *pending) wait(now time.Time) time.Duration {
	wait := time.Hour
	for _, at := range p.due {
		wait = min(wait, at.Sub(now))
	}
	return max(wait, 0)
}

// take removes the files that have settled, and returns since when each was waiting.
func (p *pending) take(now time.Time) map[string]time.Time {
	out := map[string]time.Time{}
	for name, at := range p.due {
		if !at.After(now) {
			out[name] = p.first[name]
			p.drop(name)
		}
	}
	return out
}
