package server

import (
	"fmt"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/filestore/consul"
	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// sharedStore is the health of a store in Consul.
type sharedStore interface {
	Name() string
	// Standing is why it cannot be read, Refused why it cannot be written, CopyTrouble why this
	// replica's copy cannot be saved.
	Standing() config.Outage
	Refused() config.Outage
	CopyTrouble() config.Outage
}

var _ sharedStore = (*consul.Store)(nil)

// unwritten is what does not work while the store in Consul cannot be written.
const unwritten = "nothing can be written: no machine can join, revocations apply only on this replica, " +
	"and registrations are not shared"

// sharedProblems returns the problems of the store in Consul. If it is an active source, it reports
// by itself that it cannot be read.
func sharedProblems(s sharedStore, active func(source string) bool) []feed.Problem {
	var out []feed.Problem
	now := s.Standing()
	if now.Error == "" {
		now = s.Refused()
	} else if active(s.Name()) {
		now = config.Outage{} // the source reports it
	}
	if now.Error != "" {
		out = append(out, feed.Problem{Severity: feed.Error, Source: s.Name(), Text: now.Error + "; " + unwritten,
			Since: now.Since})
	}
	if now := s.CopyTrouble(); now.Error != "" {
		text := "the copy in the state folder cannot be saved, it is tried again: " + now.Error +
			"; if ashored restarts while Consul is down, it uses an older copy, which lacks the latest revocations"
		out = append(out, feed.Problem{Severity: feed.Warning, Source: s.Name(), Field: "state", Text: text,
			Since: now.Since})
	}
	return out
}

// storeFileProblems returns why the store in the state folder cannot be written.
func storeFileProblems(home *bolt.Store) []feed.Problem {
	now := home.Outage()
	if now.Error == "" {
		return nil
	}
	return []feed.Problem{{Severity: feed.Error, Source: home.Name(), Field: "state", Text: now.Error, Since: now.Since}}
}

// storeExposed warns of a store that others may read or change. Such a change can add identities
// that the mesh trusts.
func storeExposed(o consul.Options) (out []feed.Problem) {
	consulhttp.Exposure(o.Address, o.TokenFile, func(option, format string, args ...any) {
		out = append(out, feed.Problem{Severity: feed.Warning, Source: "store", Field: "store." + option,
			Text: fmt.Sprintf(format, args...)})
	})
	return out
}
