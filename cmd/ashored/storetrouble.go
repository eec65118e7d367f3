package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore/consul"
	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// storeTrouble tells that the store in Consul is away, or takes nothing: once, however many parts feel it.
type storeTrouble struct {
	store   troubled
	address string // of its Consul
}

// troubled is a store that tells what is wrong with it.
type troubled interface {
	Name() string
	// Standing is why it cannot be read, Refused why nothing can be written, CopyTrouble why the copy of it cannot be kept.
	Standing() config.Outage
	Refused() config.Outage
	CopyTrouble() config.Outage
}

var _ troubled = (*consul.Store)(nil)

// cause is why nothing can be written now, and whether it can be read; the zero value: it can be written.
func (t storeTrouble) cause() (now config.Outage, read bool) {
	if now = t.store.Standing(); now.Error != "" {
		return now, false
	}
	return t.store.Refused(), true
}

// unwritten is what comes of it that nothing can be written, all of it.
const unwritten = "nothing can be written: no machine joins, who is revoked is out on the replica alone that was asked, and registrations and health are not shared: what the proxies of a replica say counts with that one alone until it can"

// storeField is the field of the problem that the store is away or takes nothing.
const storeField = "store"

// lastGoodStays is what becomes of its content while it cannot be read, unless the store as a source says otherwise.
const lastGoodStays = "its last good version stays in use"

// problems are those of the store itself: that it is away or takes nothing, and that this ashored's copy of it cannot be kept.
func (t storeTrouble) problems() []feed.Problem {
	var out []feed.Problem
	switch now, read := t.cause(); {
	case now.Error == "":
	case read:
		out = append(out, feed.Problem{Severity: feed.Error, Source: t.store.Name(), Field: storeField, Text: now.Error + "; what it holds is known, and " + unwritten, Since: now.Since})
	default:
		out = append(out, feed.Problem{Severity: feed.Error, Source: t.store.Name(), Field: storeField, Text: now.Error + "; " + lastGoodStays + ", and " + unwritten, Stale: true, Since: now.Since})
	}
	if now := t.store.CopyTrouble(); now.Error != "" {
		out = append(out, feed.Problem{Severity: feed.Warning, Source: t.store.Name(), Field: "state", Text: "the copy in the state folder cannot be kept: " + now.Error + "; started while Consul is away, this ashored would go by an older one, which lacks the latest revocations; it is tried again", Since: now.Since})
	}
	return out
}

// fold has what other parts say of the same trouble refer to it, and leaves out what says nothing more.
func (t storeTrouble) fold(all []feed.Problem) []feed.Problem {
	now, read := t.cause()
	if now.Error == "" {
		return all
	}
	return foldInto(all, t.store.Name(), t.address, now.Error, read)
}

// foldInto has problems refer to that of a store, whose Consul is at an address, for a cause. What becomes of its content is told there,
// as the store says it as a source.
func foldInto(all []feed.Problem, store, address, cause string, read bool) []feed.Problem {
	content := ""
	all = slices.DeleteFunc(all, func(p feed.Problem) bool {
		if p.Source != store || p.Field != "" {
			return p.Source == unshared && p.Field == unsharedField
		}
		of, about := strings.CutPrefix(p.Text, cause+"; ")
		if about {
			content = of
		}
		return about || p.Text == cause
	})
	see := map[bool]string{true: "the store takes nothing: see ", false: "the store is away: see "}[read] + store
	for i := range all {
		p := &all[i]
		if p.Source == store {
			if p.Field == storeField && content != "" {
				p.Text = strings.Replace(p.Text, lastGoodStays, content, 1)
			}
			continue
		}
		p.Text = strings.ReplaceAll(p.Text, cause, see)
		if before, of := cutConsul(p.Text, address); of && !read {
			p.Text = before + "its Consul is that of the setting store, and " + see
		}
	}
	return all
}

// cutConsul says whether a text tells that the Consul at an address is away, as sources and exports do, and what it says before that.
func cutConsul(text, address string) (before string, found bool) {
	before, after, found := strings.Cut(text, "Consul at "+address+" ")
	away := func(words string) bool { return strings.HasPrefix(after, words) }
	return before, found && slices.ContainsFunc([]string{"cannot be asked", "does not answer", "answers "}, away)
}

// exposed tells what others than ashored may get hold of: who writes to the store says what the mesh trusts.
func exposed(o consul.Options) (out []feed.Problem) {
	const gain = "writes what the mesh trusts"
	consulhttp.Exposure(o.Address, o.TokenFile, gain, gain, func(option, format string, args ...any) {
		out = append(out, feed.Problem{Severity: feed.Warning, Source: "store", Field: "store." + option, Text: fmt.Sprintf(format, args...)})
	})
	return out
}
