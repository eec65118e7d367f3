package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// wire is one stream, of either end of a call.
type wire interface {
	SendMsg(m any) error
	RecvMsg(m any) error
}

// talk is one stream while it lasts. One goroutine, speak, owns it; one reads and one writes.
type talk struct {
	*Source
	session session
	out     chan<- feed.Batch[*config.Object]
	say     chan any   // read by write
	heard   chan any   // written and closed by read
	broken  chan error // cap 2; written by read and write

	// the following belong to speak
	refused map[string]refusing // by list
	believe time.Time           // all is answered, and there is nothing: when that is believed; zero: not so
}

// refusing is the last refusal about a list.
type refusing struct {
	sum  uint64
	wait time.Duration
	// due is when held is to be said; zero: nothing is held back.
	due  time.Time
	held []any
}

const (
	// maxSay is how many requests may wait for a server to read them: more than it has answers under way.
	maxSay = 1024
	// lastRefusal is the longest wait before the same content is refused once more. Some servers answer a refusal with
	// what was refused, at once and for ever.
	lastRefusal = 10 * time.Second
)

// speak speaks on a stream until it ends, and says why. end ends the stream.
func (s *Source) speak(ctx context.Context, end context.CancelFunc, stream wire, out chan<- feed.Batch[*config.Object]) error {
	s.streams++
	t := &talk{Source: s, session: s.session(), out: out, say: make(chan any, maxSay), heard: make(chan any), broken: make(chan error, 2), refused: map[string]refusing{}}
	s.parts.Go(func() { t.read(ctx, stream) })
	s.parts.Go(func() { t.write(ctx, stream) })
	defer end()
	defer t.unbelieved()
	return t.run(ctx)
}

// read hands messages over until the stream ends.
func (t *talk) read(ctx context.Context, stream wire) {
	for {
		m := t.session.message()
		if err := stream.RecvMsg(m); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("it ended the stream")
			}
			t.broken <- err
			return
		}
		select {
		case t.heard <- m:
		case <-ctx.Done():
			return
		}
	}
}

// write says what is to be said until the stream ends. Why it does is for read to tell.
func (t *talk) write(ctx context.Context, stream wire) {
	for {
		select {
		case m := <-t.say:
			if err := stream.SendMsg(m); err != nil {
				if !errors.Is(err, io.EOF) {
					t.broken <- err
				}
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// run owns the stream. Only one of these things happens at a time: a message, the end of a wait, the end.
func (t *talk) run(ctx context.Context) error {
	if err := t.tell(t.session.open()); err != nil {
		return err
	}
	patience := time.NewTimer(t.cfg.AnswerWait)
	defer patience.Stop()
	look := time.NewTimer(t.cfg.AnswerWait)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-t.broken:
			return err
		case m := <-t.heard:
			if err := t.hear(ctx, m); err != nil {
				return err
			}
		case t.next = <-t.calls: // nobody calls where we do
			return fmt.Errorf("%w: %s", errReplaced, t.next.from)
		case <-patience.C:
			if err := t.impatient(); err != nil {
				return err
			}
		case <-look.C:
		}
		if err := t.passed(ctx, time.Now()); err != nil {
			return err
		}
		if at := t.due(time.Now()); !at.IsZero() {
			look.Reset(max(time.Until(at), 0))
		}
	}
}

// tell has something said.
func (t *talk) tell(messages []any) error {
	for _, m := range messages {
		select {
		case t.say <- m:
		default:
			return fmt.Errorf("it does not read: %d requests wait", maxSay)
		}
	}
	return nil
}

// impatient says what the server owes still, when it does.
func (t *talk) impatient() error {
	lacking := t.session.lacking()
	switch {
	case len(lacking) == 0:
		return nil
	case !t.touch.stream:
		return fmt.Errorf("%w within %s (answerWait)", errMute, t.cfg.AnswerWait)
	}
	return fmt.Errorf("it said nothing about %d kinds within %s (answerWait), the first is %s", len(lacking), t.cfg.AnswerWait, lacking[0])
}

// hear takes in one message: first what it says is handed on, then it is answered.
func (t *talk) hear(ctx context.Context, m any) error {
	now := time.Now()
	l, w, replies, err := t.session.read(m)
	if err != nil {
		return fmt.Errorf("it answers nonsense: %w", err)
	}
	t.touch.stream = true
	if l == nil {
		if w != nil {
			t.warn("unasked", now, "an answer to what was not asked was left out", "list", clip(w.list))
		}
		return t.tell(replies)
	}
	v := t.content.take(*l, w, t.streams, now)
	if t.told && !t.changes(ctx, v.changed, now) {
		return ctx.Err()
	}
	return t.answer(l, w, &v, now)
}

// answer accepts or refuses a word. The same refusal as before waits.
func (t *talk) answer(l *list, w *word, v *verdict, now time.Time) error {
	messages := t.session.answer(l, w, v.refusal())
	before, again := t.refused[l.name]
	if v.count == 0 {
		delete(t.refused, l.name)
		return t.tell(messages)
	}
	if !again || before.sum != v.sum {
		t.warn(l.name, now, "objects were refused", "list", l.name, "count", v.count, "first", v.refused[0].String())
		t.refused[l.name] = refusing{sum: v.sum}
		return t.tell(messages)
	}
	wait := max(min(2*before.wait, lastRefusal), time.Second)
	t.refused[l.name] = refusing{sum: v.sum, wait: wait, due: now.Add(wait), held: messages}
	return nil
}

// warn logs what a server does, unless it did the like often: what it sends is its own affair.
func (t *talk) warn(what string, now time.Time, message string, facts ...any) {
	if may, silent := t.logged.Allow(what, now); may {
		t.cfg.Log.Warn(message, append(facts, t.end(), t.cfg.Address, "not logged before", silent)...)
	}
}

// passed sees to what time brings: what leaves, what was held back, the first complete state, how we stand.
func (t *talk) passed(ctx context.Context, now time.Time) error {
	changed := t.content.settled(now)
	if t.told && !t.changes(ctx, changed, now) {
		return ctx.Err()
	}
	for name, r := range t.refused {
		if r.due.IsZero() || now.Before(r.due) {
			continue
		}
		if err := t.tell(r.held); err != nil {
			return err
		}
		t.refused[name] = refusing{sum: r.sum, wait: r.wait}
	}
	if len(t.session.lacking()) > 0 {
		return nil
	}
	t.touch.complete = true
	if !t.told && !t.begin(ctx, now) {
		return ctx.Err()
	}
	if !t.stand(ctx, t.out, t.doubts(now)) {
		return ctx.Err()
	}
	return nil
}

// begin sends the first complete state. A server that holds nothing at all may not have read its own source yet.
func (t *talk) begin(ctx context.Context, now time.Time) bool {
	if t.content.empty() {
		if t.believe.IsZero() {
			t.believe = now.Add(t.bare.resume(now, t.cfg.EmptyAfter))
		}
		if t.content.lasts() || now.Before(t.believe) {
			return true
		}
	}
	t.believe, t.told = time.Time{}, true
	b := feed.Batch[*config.Object]{Full: true, Since: now}
	for _, g := range t.content.groups() {
		b.Updates = append(b.Updates, t.content.update(g))
	}
	return t.send(ctx, t.out, b)
}

// unbelieved notes at the end of the stream how long there has been nothing.
func (t *talk) unbelieved() {
	if !t.believe.IsZero() && !t.content.lasts() {
		t.bare.pause(time.Now(), t.believe)
	}
}

// doubts is what the server says and is not believed yet, or that it may not be the one that is meant; empty: nothing.
func (t *talk) doubts(now time.Time) string {
	if text := t.rivals.doubts(t.cfg.Address, now); text != "" {
		return text
	}
	if !t.believe.IsZero() && t.content.total == 0 {
		return fmt.Sprintf("%s holds no object of any kind: it is believed when it has stood by that for %s (emptyAfter)", t.other(), t.cfg.EmptyAfter)
	}
	if text, _ := t.content.doubts(); text != "" {
		return fmt.Sprintf("%s: %s", t.other(), text)
	}
	for _, name := range slices.Sorted(maps.Keys(t.unknown)) {
		if n := t.content.held(name); n > 0 {
			return fmt.Sprintf("the server %s does not know the collection %s any more: %d objects that it listed there stay; leave it out of the setting collections to have them gone", t.cfg.Address, name, n)
		}
	}
	return t.returns.returned(t.cfg.Address, now)
}

// due is when passed has something to do; zero: not before the next message.
func (t *talk) due(now time.Time) time.Time {
	at := t.content.due()
	earlier := func(u time.Time) {
		if !u.IsZero() && (at.IsZero() || u.Before(at)) {
			at = u
		}
	}
	for _, r := range t.refused {
		earlier(r.due)
	}
	earlier(t.rivals.over(now))
	earlier(t.returns.over(now))
	if !t.believe.IsZero() && !t.content.lasts() {
		earlier(t.believe)
	}
	return at
}

// changes sends groups; false: ctx ended.
func (t *talk) changes(ctx context.Context, changed []group, now time.Time) bool {
	if len(changed) == 0 {
		return true
	}
	b := feed.Batch[*config.Object]{Since: now}
	for _, g := range changed {
		b.Updates = append(b.Updates, t.content.update(g))
	}
	return t.send(ctx, t.out, b)
}
