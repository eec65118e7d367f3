package agent

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/wholefile"
	"github.com/ashore-mesh/ashore/xds/resource"
)

const (
	// copyQuiet is how long a change waits for others before the copy is written, and copyGap how long the disk rests
	// between two copies.
	copyQuiet, copyGap = time.Second, 10 * time.Second
	// copyRetry is how long after a copy that could not be written the next one is tried, though nothing changed.
	copyRetry = 30 * time.Second
	// confirmGap is how often it is noted that a control plane confirms what is held; after a loss of power the copy counts as older by that.
	confirmGap = time.Minute
)

// restore takes in the copy on disk.
func (p *proxy) restore() {
	fresh := restoring{relay: newRelay()}
	h, err := p.copy.load(p.now(), p.cfg.MaxAge, fresh.take)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		p.refusal = err.Error()
		p.log.Warn("the copy of the configuration on disk is not used", "path", p.copy.path(), "reason", err)
		return
	}
	p.relay, p.build, p.confirmed, p.onCopy = fresh.relay, fresh.build, h.confirmed, h.confirmed
	p.restoreProbe(fresh.group, fresh.probe)
	p.relay.unclean = !h.clean
	p.seen, p.saved = p.relay.version, p.relay.version
	n, _ := p.relay.counts()
	p.log.Info("starting on a copy of the configuration", "from", h.confirmed.UTC().Format(time.RFC3339), "age", span(p.now().Sub(h.confirmed)), "resources", n)
}

// restoring is a relay that is being made of records.
type restoring struct {
	relay *relay
	build []byte
	held  *heldType
	entry *heldEntry
	group string // whose probe is probe
	probe []byte // nil: none was kept
}

// take takes in one record. Errors: it stands in the wrong place.
func (r *restoring) take(_ copyHeader, c *copyRecord) error {
	if c.kind != copyBuild && c.kind != copyType && c.kind != copyProbe && r.held == nil || c.kind == copyAccepted && r.entry == nil {
		return errCopyDamaged
	}
	switch c.kind {
	case copyBuild:
		r.build = bytes.Clone(c.body)
	case copyType:
		r.held, r.entry = r.relay.held(c.name), nil
		r.held.all, r.held.complete = c.flags&copyFlagAll != 0, c.flags&copyFlagComplete != 0
	case copyWanted:
		r.held.names[c.name] = struct{}{}
		r.held.retain(map[string]struct{}{c.name: {}})
	case copyGone:
		r.held.gone[c.name] = struct{}{}
	case copyOffered:
		r.offered(c)
	case copyProbe:
		r.group, r.probe = c.name, append([]byte{}, c.body...)
	case copyAccepted:
		r.entry.accepted, r.entry.acceptedVersion = r.resource(c), c.version
	}
	return nil
}

func (r *restoring) offered(c *copyRecord) {
	e := &heldEntry{offered: r.resource(c), version: c.version, words: c.words, refusedAt: c.at}
	r.held.entries[c.name], r.entry = e, e
	switch {
	case c.words != "":
		r.held.denied[c.name] = struct{}{}
	case c.flags&copyFlagAccepted == 0:
		r.held.open[c.name] = struct{}{}
	}
	if c.flags&copyFlagAccepted != 0 {
		e.accepted, e.acceptedVersion = e.offered, e.version
	}
}

func (r *restoring) resource(c *copyRecord) *resource.Resource {
	typeURL := c.typeURL
	if typeURL == "" {
		typeURL = r.held.kind.TypeURL
	}
	res := resource.New(typeURL, c.name, refsOf(typeURL, c.name, c.body), func() []byte { return c.body })
	res.Version() // makes its own copy of the bytes
	return res
}

// records is what a copy is to hold. p.mu is held; what is returned does not need it.
func (p *proxy) records() records {
	build := p.build
	var list []func(*copyRecord)
	add := func(f func(*copyRecord)) { list = append(list, f) }
	add(func(c *copyRecord) { c.kind, c.body = copyBuild, build })
	for _, t := range p.relay.types {
		t.records(add)
	}
	if probe := p.probe.used; probe != nil {
		add(func(c *copyRecord) { c.kind, c.name, c.body = copyProbe, p.cfg.Group, probe })
	}
	return func(yield func(*copyRecord) bool) {
		for _, f := range list {
			var c copyRecord
			if f(&c); !yield(&c) {
				return
			}
		}
	}
}

// records adds what a copy is to hold of a type. Resources never change: what is added needs no lock.
func (t *heldType) records(add func(func(*copyRecord))) {
	head := copyRecord{kind: copyType, name: t.kind.TypeURL}
	if t.all {
		head.flags |= copyFlagAll
	}
	if t.complete {
		head.flags |= copyFlagComplete
	}
	add(func(c *copyRecord) { *c = head })
	for _, name := range slices.Sorted(maps.Keys(t.names)) {
		add(func(c *copyRecord) { c.kind, c.name = copyWanted, name })
	}
	for _, name := range slices.Sorted(maps.Keys(t.gone)) {
		add(func(c *copyRecord) { c.kind, c.name = copyGone, name })
	}
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := *t.entries[name]
		add(func(c *copyRecord) {
			c.of(copyOffered, e.offered, e.version, t.kind.TypeURL)
			c.words, c.at = e.words, e.refusedAt
			if e.accepted == e.offered {
				c.flags = copyFlagAccepted
			}
		})
		if e.accepted != nil && e.accepted != e.offered {
			add(func(c *copyRecord) { c.of(copyAccepted, e.accepted, e.acceptedVersion, t.kind.TypeURL) })
		}
	}
}

// of makes the record that of a resource.
func (c *copyRecord) of(kind copyKind, r *resource.Resource, version, typeURL string) {
	c.kind, c.name, c.version, c.body = kind, r.Name, version, r.Body()
	if r.TypeURL != typeURL {
		c.typeURL = r.TypeURL
	}
}

// keepCopy writes the copy when something changed, at the end once more. The caller holds the lock of the state folder.
func (p *proxy) keepCopy(ctx context.Context) error {
	if err := wholefile.Clean(p.copy.dir); err != nil {
		p.log.Warn("what was left of an unfinished copy cannot be removed", "error", err)
	}
	confirm := time.NewTicker(confirmGap)
	defer confirm.Stop()
	var due <-chan time.Time
	var last time.Time
	rest := time.After(copyGap) // what the start left behind is given back too
	for {
		select {
		case <-ctx.Done():
			p.saveCopy(true)
			return nil
		case <-p.dirty:
			if due == nil {
				due = time.After(max(copyQuiet, time.Until(last.Add(copyGap))))
			}
		case <-due:
			due, last = nil, time.Now()
			if !p.saveCopy(false) {
				due = time.After(copyRetry)
			}
			rest = time.After(copyGap)
		case <-rest:
			debug.FreeOSMemory() // an agent at rest collects no garbage by itself for minutes
		case <-confirm.C:
			p.confirmCopy()
		}
	}
}

// saveCopy writes the copy. An error is shown by Status and logged when it is new: everything else goes on.
func (p *proxy) saveCopy(clean bool) (ok bool) {
	p.mu.Lock()
	h := copyHeader{saved: p.now(), confirmed: p.heard(), clean: clean && p.relay.certain()}
	all, version := p.records(), p.relay.version
	p.mu.Unlock()
	if h.confirmed.IsZero() {
		return true // nobody has said anything yet
	}
	err := p.copy.save(h, all)
	p.copied(err)
	if err == nil {
		p.mu.Lock()
		p.saved = version
		p.mu.Unlock()
	}
	return err == nil
}

// confirmCopy notes that a control plane confirms what the copy holds.
func (p *proxy) confirmCopy() {
	p.mu.Lock()
	proven, at := p.link.proven && p.saved == p.relay.version, p.heard()
	p.mu.Unlock()
	if proven {
		p.copied(p.copy.confirm(at))
	}
}

// copied notes how writing the copy went.
func (p *proxy) copied(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	p.mu.Lock()
	again := p.writeErr == text
	p.writeErr = text
	p.mu.Unlock()
	if err != nil && !again {
		p.log.Error("the copy of the configuration cannot be written: after a restart without a control plane, an older one would be used", "error", err)
	}
}
