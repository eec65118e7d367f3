package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// stream is one discovery stream while it lasts. One goroutine, run, owns it.
//
// It claims nothing of former streams, so the first answer for each type is the server's whole
// state of it. When all kinds are answered, everything is sent as one Full batch; after that, each
// answer is a batch.
type stream struct {
	src *Source
	out chan<- feed.Batch[*config.Object]

	subscriptions map[string]*subscription               // by type URL
	kinds         [][]*subscription                      // those of each kind, the newest version first
	pending       map[string]feed.Update[*config.Object] // groups, until all kinds are answered
	resources     int                                    // of all subscriptions
	bytes         int                                    // of all resources
	nodeSent      bool
	heard         bool // the server answered
	complete      bool // the Full batch was sent
}

// subscription is one type URL that is subscribed to.
type subscription struct {
	typeURL   string
	kind      config.KindInfo
	asked     bool
	answered  bool
	version   string              // accepted last; for state of the world
	rejected  time.Time           // when an answer was rejected last
	resources map[string]received // by name
}

// received is what the server sent last of a resource.
type received struct {
	group string
	sum   uint64
	bytes int
}

func newStream(s *Source, out chan<- feed.Batch[*config.Object]) *stream {
	st := &stream{
		src: s, out: out, subscriptions: map[string]*subscription{}, pending: map[string]feed.Update[*config.Object]{},
	}
	for _, k := range s.cfg.kinds() {
		var versions []*subscription
		for _, url := range typeURLs(k) {
			sub := &subscription{typeURL: url, kind: k, resources: map[string]received{}}
			st.subscriptions[url] = sub
			versions = append(versions, sub)
		}
		st.kinds = append(st.kinds, versions)
	}
	return st
}

// run speaks with the server until the stream ends, and returns why.
func (st *stream) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	conn, closeConn, err := st.src.connect(ctx)
	if err != nil {
		cancel()
		return err
	}
	messages, ended := make(chan []byte), make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- receive(ctx, conn, messages)
	}()
	defer func() { cancel(); closeConn(); <-done }()
	err = st.speak(ctx, conn, messages, ended)
	for errors.Is(err, io.EOF) { // of a send: receiving returns the reason
		select {
		case err = <-ended:
		case <-messages:
		}
	}
	return err
}

// speak subscribes to all kinds and handles messages until the stream ends.
func (st *stream) speak(ctx context.Context, conn grpc.ClientStream, messages <-chan []byte, ended <-chan error) error {
	for _, versions := range st.kinds {
		if err := st.ask(conn, versions[0]); err != nil {
			return err
		}
	}
	timeout := time.NewTimer(st.src.cfg.AnswerWait)
	defer timeout.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case <-timeout.C:
			if err := st.overdue(); err != nil {
				return err
			}
		case raw := <-messages:
			if err := st.handle(ctx, conn, raw); err != nil {
				return err
			}
		}
	}
}

// receive passes messages on until the stream ends, and returns why.
func receive(ctx context.Context, conn grpc.ClientStream, messages chan<- []byte) error {
	for {
		var f frame
		if err := conn.RecvMsg(&f); err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("it ended the stream")
			}
			return err
		}
		select {
		case messages <- f.raw:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// overdue returns which kinds the server has not answered; nil: none.
func (st *stream) overdue() error {
	missing := st.unanswered()
	switch {
	case st.complete, len(missing) == 0:
		return nil
	case !st.heard:
		return fmt.Errorf("%w within %s (answerWait)", errSilent, st.src.cfg.AnswerWait)
	}
	return fmt.Errorf("it did not answer for %d kinds within %s (answerWait), the first is %s",
		len(missing), st.src.cfg.AnswerWait, missing[0])
}

// unanswered lists the kinds for which an answer is missing.
func (st *stream) unanswered() (out []config.Kind) {
	for _, versions := range st.kinds {
		if slices.ContainsFunc(versions, func(s *subscription) bool { return s.asked && !s.answered }) {
			out = append(out, versions[0].kind.Kind)
		}
	}
	return out
}

// ask subscribes to a type.
func (st *stream) ask(conn grpc.ClientStream, sub *subscription) error {
	sub.asked = true
	return st.send(conn, sub, "", nil)
}

// send sends a request: the first for a type without a nonce, after that the acknowledgement or
// rejection of an answer.
func (st *stream) send(conn grpc.ClientStream, sub *subscription, nonce string, rejection *ads.Rejection) error {
	var node []byte
	if !st.nodeSent {
		node, st.nodeSent = st.src.node, true
	}
	if st.src.stateOfTheWorld {
		ask := ads.StateAsk{TypeURL: sub.typeURL, Node: node, Version: sub.version, Nonce: nonce, Rejected: rejection}
		return conn.SendMsg(&frame{ask.Encode()})
	}
	ask := ads.Ask{TypeURL: sub.typeURL, Node: node, Nonce: nonce, Rejected: rejection}
	return conn.SendMsg(&frame{ask.Encode()})
}

// answer is one response of the server.
type answer struct {
	typeURL, nonce, version string
	items                   []ads.Item
	removed                 []string
	whole                   bool // resources that are not in items are gone
}

func (st *stream) read(raw []byte) (a answer, err error) {
	limits := ads.Limits{Names: max(2*st.src.cfg.MaxObjects, 1000)}
	if st.src.stateOfTheWorld {
		r, err := ads.ReadStateReply(raw, limits)
		if err != nil {
			return a, err
		}
		return answer{typeURL: r.TypeURL, nonce: r.Nonce, version: r.Version, items: r.Items, whole: true}, nil
	}
	r, err := ads.ReadReply(raw, limits)
	if err != nil {
		return a, err
	}
	return answer{typeURL: r.TypeURL, nonce: r.Nonce, items: r.Items, removed: r.Removed}, nil
}

// handle takes in one message: its content is passed on, then it is acknowledged or rejected.
func (st *stream) handle(ctx context.Context, conn grpc.ClientStream, raw []byte) error {
	since := time.Now()
	a, err := st.read(raw)
	if err != nil {
		return fmt.Errorf("it sent an answer that cannot be read: %w", err)
	}
	st.heard = true
	sub := st.subscriptions[a.typeURL]
	if sub == nil || !sub.asked {
		st.src.cfg.Log.Debug("ignored an answer for a type that is not subscribed", "type", clip(a.typeURL))
		return nil
	}
	changed, removed, problems, err := st.apply(sub, a)
	if err != nil {
		return err
	}
	sub.answered = true
	if err := st.acknowledge(conn, sub, a, problems); err != nil {
		return err
	}
	if err := st.askOlder(conn, sub); err != nil {
		return err
	}
	return st.publish(ctx, changed, removed, since)
}

// askOlder subscribes to the next older version of a kind when the server has nothing under the
// newer ones: servers answer versions that they do not know with nothing.
func (st *stream) askOlder(conn grpc.ClientStream, sub *subscription) error {
	for _, versions := range st.kinds {
		i := slices.Index(versions, sub)
		if i < 0 || i+1 == len(versions) || versions[i+1].asked ||
			slices.ContainsFunc(versions, func(s *subscription) bool { return len(s.resources) > 0 }) {
			continue
		}
		return st.ask(conn, versions[i+1])
	}
	return nil
}

// apply takes in an answer, and returns the groups that it changes and removes. problems are the
// resources that are refused.
func (st *stream) apply(sub *subscription, a answer) (
	changed []feed.Update[*config.Object], removed []string, problems []feed.Problem, err error,
) {
	kept := map[string]bool{}
	remove := func(name string) {
		if old, had := sub.resources[name]; had {
			delete(sub.resources, name)
			st.resources, st.bytes = st.resources-1, st.bytes-old.bytes
			if !st.supplies(sub.kind.Kind, name) {
				removed = append(removed, old.group)
			}
		}
	}
	for _, it := range a.items {
		r := item{kind: sub.kind, name: it.Name, typeURL: it.TypeURL, raw: it.Body}
		u := r.update(st.src.Name(), st.src.cfg.Revision)
		name := r.id()
		kept[name] = true
		old, had := sub.resources[name]
		now := received{group: u.Group, sum: r.sum(), bytes: len(it.Body)}
		st.bytes += now.bytes - old.bytes
		if !had {
			st.resources++
		}
		sub.resources[name] = now
		for _, p := range u.Problems {
			if p.IsError() {
				problems = append(problems, p)
			}
		}
		if !had || old.sum != now.sum {
			changed = append(changed, u)
		}
	}
	if most := st.src.cfg.MaxObjects; st.resources > most {
		return nil, nil, nil, fmt.Errorf("it lists more than %d objects: raise maxObjects, or subscribe to fewer kinds",
			most)
	}
	if most := 4 * st.src.cfg.MaxMessage; st.bytes > most {
		return nil, nil, nil, fmt.Errorf(
			"it lists objects of more than %d bytes, four times maxMessage: raise it, or subscribe to fewer kinds", most)
	}
	for _, name := range a.removed {
		remove(name)
	}
	if a.whole {
		for _, name := range slices.Sorted(maps.Keys(sub.resources)) {
			if !kept[name] {
				remove(name)
			}
		}
	}
	return changed, removed, problems, nil
}

// supplies reports whether the server has a resource under any version of its kind.
func (st *stream) supplies(kind config.Kind, name string) bool {
	for _, sub := range st.subscriptions {
		if _, has := sub.resources[name]; has && sub.kind.Kind == kind {
			return true
		}
	}
	return false
}

// mostRefused limits the problems in a rejection.
const mostRefused = 20

// acknowledge accepts an answer, or rejects it with the problems. Some servers send a rejected
// answer again at once, so a type is rejected at most once a second.
func (st *stream) acknowledge(conn grpc.ClientStream, sub *subscription, a answer, problems []feed.Problem) error {
	if a.nonce == "" {
		return nil
	}
	now := time.Now()
	if len(problems) == 0 || now.Sub(sub.rejected) < time.Second {
		sub.version = a.version
		return st.send(conn, sub, a.nonce, nil)
	}
	sub.rejected = now
	text := fmt.Sprintf("refused %d: ", len(problems))
	for i, p := range problems[:min(mostRefused, len(problems))] {
		if i > 0 {
			text += "; "
		}
		text += clip(p.String())
	}
	st.src.cfg.Log.Warn("the server sent objects that are not valid", "server", st.src.cfg.Address,
		"type", sub.typeURL, "count", len(problems), "first", problems[0].String())
	return st.send(conn, sub, a.nonce, &ads.Rejection{Code: codeInvalidArgument,
		Message: strings.ToValidUTF8(text, "?")})
}

// codeInvalidArgument is google.rpc.Code.INVALID_ARGUMENT.
const codeInvalidArgument = 3

// publish passes groups on: once all kinds are answered as a Full batch, then as they change. What
// the server removed by name is an explicit removal.
func (st *stream) publish(
	ctx context.Context, changed []feed.Update[*config.Object], removed []string, since time.Time,
) error {
	if !st.complete {
		for _, u := range changed {
			st.pending[u.Group] = u
		}
		for _, group := range removed {
			delete(st.pending, group)
		}
		if len(st.unanswered()) > 0 {
			return nil
		}
		b := feed.Batch[*config.Object]{Full: true, Since: since}
		for _, group := range slices.Sorted(maps.Keys(st.pending)) {
			b.Updates = append(b.Updates, st.pending[group])
		}
		st.pending, st.complete = nil, true
		st.src.cfg.Log.Info("connected to the server", "server", st.src.cfg.Address, "objects", st.resources)
		return st.deliver(ctx, b)
	}
	if len(changed) > 0 {
		if err := st.deliver(ctx, feed.Batch[*config.Object]{Updates: changed, Since: since}); err != nil {
			return err
		}
	}
	if len(removed) == 0 {
		return nil
	}
	b := feed.Batch[*config.Object]{Explicit: !st.src.stateOfTheWorld, Since: since}
	for _, group := range removed {
		b.Updates = append(b.Updates, feed.Update[*config.Object]{Group: group})
	}
	return st.deliver(ctx, b)
}

func (st *stream) deliver(ctx context.Context, b feed.Batch[*config.Object]) error {
	b.Source = st.src.Name()
	select {
	case st.out <- b:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
