package lastgood

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Config says what is kept of a source, and when it stands in.
type Config[T any] struct {
	// Source is whose content is kept; required.
	Source feed.Source[T]
	// Store keeps it; required.
	Store Store
	// Encode and Decode turn the items of a group into JSON and back; required. Decode may return the items that it can read
	// with an error about the others.
	Encode func([]T) ([]byte, error)
	Decode func([]byte) ([]T, error)
	// Patience is how long the source may take for its first complete state before what was kept stands in. Default 2s.
	Patience time.Duration
	// MaxAge is how old content may become while the source is not in touch with its origin; zero: any age.
	MaxAge time.Duration
	// Drop says that content which is older counts as gone. Otherwise it stays, and its age is a problem.
	Drop bool
	// Log tells what stands in; nil discards.
	Log hclog.Logger
}

const (
	defaultPatience = 2 * time.Second
	// writeGap is between two writes. The first content, and a change after a quiet spell, is written at once.
	writeGap = time.Second
	// touchPace is how often it is written down that the content is still right, besides when an outage begins and ends: after a
	// restart its age may be that much too high.
	touchPace = time.Minute
)

// Source is a source whose content stands in for it after a restart.
type Source[T any] struct{ cfg Config[T] }

// New makes a source; Run starts it.
func New[T any](cfg Config[T]) *Source[T] {
	cfg.Patience = cmp.Or(cfg.Patience, defaultPatience)
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
	return &Source[T]{cfg}
}

// Name is that of the wrapped source.
func (s *Source[T]) Name() string { return s.cfg.Source.Name() }

// Rememberer is a source that wants to know, before it runs, what it said before the start: it may then doubt what it hears, or
// have some of it stand in. Remember is called when there is a complete content alone; Away tells of each group when it was last
// known to be right. Of what cannot be read there is the problem alone.
type Rememberer[T any] interface {
	Remember(kept []feed.Update[T])
}

// Run is feed.Source's.
func (s *Source[T]) Run(ctx context.Context, out chan<- feed.Batch[T]) error {
	g, ctx := errgroup.WithContext(ctx)
	from := make(chan feed.Batch[T])
	k := &keeping[T]{cfg: s.cfg, out: out, groups: map[string]feed.Update[T]{}, away: map[string]time.Time{}, old: map[string]bool{}}
	r, remembers := s.cfg.Source.(Rememberer[T])
	if remembers {
		k.load(ctx)
		if k.spare {
			r.Remember(k.remembered())
		}
	}
	w := NewWriter(s.cfg.Store, s.Name(), Pace{Gap: writeGap}, s.cfg.Log)
	g.Go(func() error { return s.cfg.Source.Run(ctx, from) })
	g.Go(func() error { w.Run(ctx); return nil })
	g.Go(func() error {
		defer w.End()
		if k.writer = w; !remembers {
			k.load(ctx)
		}
		k.run(ctx, from)
		return nil
	})
	return g.Wait()
}

// keeping is the state of a Source that runs. One goroutine owns it.
type keeping[T any] struct {
	cfg    Config[T]
	writer *Writer
	out    chan<- feed.Batch[T]

	groups map[string]feed.Update[T] // the latest content
	unread map[string]feed.Problem   // those of them of which not all that was kept can be read
	stands feed.Standing
	asOf   time.Time // when the content was last known to be right: of the last batch or touch, and in an outage when that began; zero: never
	lost   string    // why nothing of what was kept can be read; empty: it can
	spare  bool      // there is a complete content from before the start, which does not stand in yet
	live   bool      // the source itself has said everything
	gone   bool      // the content is too old and counts as gone
	told   bool      // that it is too old was told
	unkept string    // why contents cannot be kept; empty: they are
	since  time.Time // when that was first seen

	away map[string]time.Time // groups that are away by themselves, and since when
	old  map[string]bool      // those of them that are too old, of which was told
}

// run passes on what the source says until ctx ends.
func (k *keeping[T]) run(ctx context.Context, from <-chan feed.Batch[T]) {
	patience := time.NewTimer(k.cfg.Patience)
	defer patience.Stop()
	touch := time.NewTicker(touchPace)
	defer touch.Stop()
	age := time.NewTimer(0)
	defer age.Stop()
	for {
		var b feed.Batch[T]
		select {
		case <-ctx.Done():
			return
		case b = <-from:
			b = k.take(b, time.Now())
		case <-patience.C:
			b = k.standIn(time.Now())
		case <-touch.C:
			k.touched(time.Now())
			continue
		case <-age.C:
			b = k.aged(time.Now())
			b.Updates = append(b.Updates, k.agedGroups(time.Now())...)
		case err := <-k.writer.Status():
			b = k.wrote(err, time.Now())
		}
		if rest := k.left(time.Now()); rest > 0 {
			age.Reset(rest)
		}
		if !k.send(ctx, b) {
			return
		}
	}
}

// send delivers a batch that says something; false: ctx has ended.
func (k *keeping[T]) send(ctx context.Context, b feed.Batch[T]) bool {
	if !b.Full && len(b.Updates) == 0 && b.Standing == nil {
		return true
	}
	b.Source = k.cfg.Source.Name()
	select {
	case k.out <- b:
		return true
	case <-ctx.Done():
		return false
	}
}

// load reads what was kept, when it is complete.
func (k *keeping[T]) load(ctx context.Context) {
	name := k.cfg.Source.Name()
	contents, err := k.cfg.Store.LoadLastGood(ctx, name)
	if err != nil {
		k.lost = err.Error()
		k.cfg.Log.Error("what was kept of a source cannot be read: nothing stands in for it", "source", name, "error", err)
		return
	}
	all, err := decodeAll(contents, k.cfg.Decode, time.Now())
	if err != nil {
		k.cfg.Log.Error("some of what was kept of a source cannot be used", "source", name, "error", err)
		if !all.complete {
			k.lost = err.Error()
		}
	}
	if all.complete {
		k.groups, k.asOf, k.unread, k.spare = all.groups, all.asOf, all.unread, true
		for _, u := range all.groups {
			k.noteAway(u)
		}
	}
}

// standIn is the batch of what was kept, unless the source has said everything, or it is too old for that.
func (k *keeping[T]) standIn(now time.Time) feed.Batch[T] {
	if !k.spare {
		return feed.Batch[T]{}
	}
	k.spare = false
	if k.stands.Error == "" {
		k.stands.Error = "it has not answered yet"
	}
	if b := k.aged(now); k.gone {
		return b
	}
	k.cfg.Log.Warn("a source has not answered: what it said before the start stands in", "source", k.cfg.Source.Name(), "as_of", k.asOf, "groups", len(k.groups))
	k.agedGroups(now)
	return feed.Batch[T]{Full: true, Updates: append(k.all(), others[T]()), Standing: k.standing()}
}

// others stands for the groups of which nothing was kept: nobody knows whether there are any.
func others[T any]() feed.Update[T] { return feed.Update[T]{Group: "(others)", Kept: true} }

// take notes what the source says, and returns what to pass on.
func (k *keeping[T]) take(b feed.Batch[T], now time.Time) feed.Batch[T] {
	wasOld, was := k.gone, k.inTouch()
	if b.Standing != nil {
		k.stands = *b.Standing
	} else if b.Full && !k.live {
		k.stands = feed.Standing{Since: now}
	}
	if !b.Full && k.stands.Error != "" && k.spare {
		return k.standIn(now)
	}
	change := map[string]Content{}
	if b.Full {
		b.Updates = k.withGone(b)
		for group := range k.groups {
			change[groupPrefix+group] = nil
		}
		clear(k.groups)
		clear(k.away)
		k.live, k.spare = true, false
	}
	for _, u := range b.Updates {
		k.note(u, change)
	}
	switch is := k.inTouch(); {
	case is:
		k.asOf, k.gone, k.told = now, false, false
	case was:
		k.asOf = k.parted(now)
	}
	if k.live && len(change) > 0 || b.Full || was != k.inTouch() {
		change[AboutAll] = k.summary()
		k.writer.Put(change)
	}
	if b.Standing != nil || b.Full {
		b.Standing = k.standing()
	}
	b.Updates = k.shownIn(b, now)
	if wasOld && !k.gone && !b.Full {
		return feed.Batch[T]{Full: true, Updates: k.all(), Standing: k.standing(), Since: b.Since}
	}
	return b
}

// withGone are what the source says first, and the groups that it does not have any more of those that were kept and did not stand in.
func (k *keeping[T]) withGone(b feed.Batch[T]) []feed.Update[T] {
	if !k.spare {
		return b.Updates
	}
	has := make(map[string]bool, len(b.Updates))
	for _, u := range b.Updates {
		has[u.Group] = true
	}
	out := slices.Clip(b.Updates)
	for _, group := range slices.Sorted(maps.Keys(k.groups)) {
		if items := k.groups[group].Items; !has[group] && len(items) > 0 {
			out = append(out, feed.Update[T]{Group: group, Was: items})
		}
	}
	return out
}

// note takes in one group. What was kept of it and cannot be read is kept on while the source has that stand in.
func (k *keeping[T]) note(u feed.Update[T], change map[string]Content) {
	k.noteAway(u)
	if _, unread := k.unread[u.Group]; unread && u.Kept {
		k.groups[u.Group] = u
		delete(change, groupPrefix+u.Group)
		return
	}
	delete(k.unread, u.Group)
	if len(u.Items) == 0 && len(u.Problems) == 0 && u.Away.IsZero() {
		delete(k.groups, u.Group)
		change[groupPrefix+u.Group] = nil
		return
	}
	k.groups[u.Group] = u
	change[groupPrefix+u.Group] = func() ([]byte, error) {
		items, err := k.cfg.Encode(u.Items)
		if err != nil {
			return nil, err
		}
		kept := keptGroup{AsOf: u.AsOf, Items: items, Away: u.Away, Within: u.Within, Mark: u.Mark}
		if !u.Away.IsZero() {
			kept.Problems = u.Problems
		}
		return json.Marshal(kept)
	}
}

func (k *keeping[T]) summary() Content {
	asOf := k.asOf
	return func() ([]byte, error) { return json.Marshal(summary{AsOf: asOf}) }
}

// inTouch says that the source has said everything, and still would say what changes.
func (k *keeping[T]) inTouch() bool { return k.live && k.stands.Error == "" }

// parted is when the outage began that is heard of now: until then the source would have said what changes, however long ago
// it last said anything.
func (k *keeping[T]) parted(now time.Time) time.Time {
	if since := k.stands.Since; !since.IsZero() && since.Before(now) {
		return since
	}
	return now
}

// touched writes down that the content is still right.
func (k *keeping[T]) touched(now time.Time) {
	if k.inTouch() {
		k.asOf = now
		k.writer.Put(map[string]Content{AboutAll: k.summary()})
	}
}

// all are the groups in their order, as they are passed on.
func (k *keeping[T]) all() []feed.Update[T] {
	out := make([]feed.Update[T], 0, len(k.groups))
	for _, group := range slices.Sorted(maps.Keys(k.groups)) {
		out = append(out, k.shown(k.groups[group]))
	}
	return out
}

// left is after how long the content, or that of a group, is too old; zero: none ages, or that was told.
func (k *keeping[T]) left(now time.Time) time.Duration {
	var first time.Time
	if k.ages() {
		first = k.asOf
	}
	if since := k.oldestGroup(); !since.IsZero() && (first.IsZero() || since.Before(first)) {
		first = since
	}
	if first.IsZero() {
		return 0
	}
	return max(first.Add(k.cfg.MaxAge).Sub(now), time.Nanosecond)
}

// ages says that the content may become too old, and that nobody was told that it is. What does not stand in yet does not:
// the source itself may answer before it would have to.
func (k *keeping[T]) ages() bool {
	return k.cfg.MaxAge > 0 && !k.inTouch() && !k.told && !k.spare && !k.asOf.IsZero()
}

// aged is the batch that says that the content is too old, once it is.
func (k *keeping[T]) aged(now time.Time) feed.Batch[T] {
	if !k.ages() || now.Sub(k.asOf) < k.cfg.MaxAge {
		return feed.Batch[T]{}
	}
	k.told = true
	k.cfg.Log.Error("the content of a source is older than its setting maxAge allows", "source", k.cfg.Source.Name(), "as_of", k.asOf, "max_age", k.cfg.MaxAge, "dropped", k.cfg.Drop)
	b := feed.Batch[T]{Standing: k.standing()}
	if k.cfg.Drop {
		k.gone, b.Full, b.Updates = true, true, []feed.Update[T]{others[T]()}
	}
	return b
}

// wrote takes in whether contents can be kept.
func (k *keeping[T]) wrote(err error, now time.Time) feed.Batch[T] {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == k.unkept {
		return feed.Batch[T]{}
	}
	if k.unkept == "" {
		k.since = now
	}
	k.unkept = text
	if err != nil {
		k.cfg.Log.Error("what a source says cannot be kept for a restart; it is tried again", "source", k.cfg.Source.Name(), "error", err)
	} else {
		k.cfg.Log.Info("what a source says is kept for a restart again", "source", k.cfg.Source.Name())
	}
	return feed.Batch[T]{Standing: k.standing()}
}

// standing is how the source stands, with what is to be said of its content.
func (k *keeping[T]) standing() *feed.Standing {
	out := k.stands
	out.Cause = k.stands.Error
	switch {
	case k.stands.Error == "":
	case k.told && k.cfg.Drop:
		out.Error += fmt.Sprintf("; its content of %s is older than the setting maxAge (%s) allows, and counts as gone", k.asOf.UTC().Format(time.RFC3339), k.cfg.MaxAge)
	case k.told:
		out.Error += fmt.Sprintf("; its content of %s is older than the setting maxAge (%s) allows, and stays in use", k.asOf.UTC().Format(time.RFC3339), k.cfg.MaxAge)
	case !k.live && k.lost != "":
		out.Error += "; what it said before the start cannot be read, so that nothing stands in: " + k.lost
	case !k.live && !k.asOf.IsZero():
		out.Error += fmt.Sprintf("; its content of %s stands in", k.asOf.UTC().Format(time.RFC3339))
	}
	if out.Error != "" && !k.asOf.IsZero() {
		out.Since = k.asOf
	}
	if k.unkept != "" {
		out.Besides = &feed.Problem{Severity: feed.Error, Since: k.since, Text: "what it says cannot be kept for a restart: " + k.unkept + "; it takes effect all the same, and it is tried again"}
	}
	return &out
}
