package consul

import (
	"reflect"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// told is what an update can be made of: a service, or a notice.
type told interface {
	update() feed.Update[registry.Instances]
}

// notice is a group without content, which tells of a place, or of the source. The goroutine of keeper.loop owns it.
type notice struct {
	group   string // set once; no service is called so
	problem *feed.Problem
	away    time.Time // of when what is within it is; zero: of now
}

// Kinds of notices, which end the names of their groups.
const (
	noticeAway        = "/away"        // a place cannot be asked for
	noticeLost        = "/lost"        // it came back without services that it had
	noticeHidden      = "/hidden"      // the token does not read all of it
	noticeRestored    = "/restored"    // a restoration of it may not be noticed
	noticeChosen      = "/chosen"      // the settings choose nothing of it
	noticeDatacenters = "/datacenters" // those that there are cannot be asked for
	noticeTurns       = "/turns"       // places are asked by turns
)

func (p place) notice(kind string) *notice { return &notice{group: p.group("") + kind} }

func (n *notice) update() feed.Update[registry.Instances] {
	u := feed.Update[registry.Instances]{Group: n.group, Away: n.away}
	if n.problem != nil {
		u.Problems = []feed.Problem{*n.problem}
	}
	return u
}

// notify has a notice say this; nil: nothing. What is within it is of away from then on; zero: of now.
func (k *keeper) notify(n *notice, p *feed.Problem, away time.Time) {
	if n.away.Equal(away) && reflect.DeepEqual(n.problem, p) {
		return
	}
	n.problem, n.away = p, away
	k.post(n.group, n)
}

// post has a group sent again, because of how it stands: its content is the same.
func (k *keeper) post(group string, t told) { k.changed[group] = t }
