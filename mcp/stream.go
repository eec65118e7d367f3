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

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// stream is one xDS stream. The goroutine that calls run owns it.
//
// It sends no initial_resource_versions, so the first response for each type has all of its
// resources. Once every kind has a response, the stream publishes one Full batch. After that, it
// publishes each response.
type stream struct {
	src *Source
	out chan<- feed.Batch[*config.Object]

	subscriptions map[string]*subscription               // by type URL
	kinds         [][]*subscription                      // of each kind, the newest API version first
	pending       map[string]feed.Update[*config.Object] // by group, until the Full batch is sent
	objectCount   int                                    // of all subscriptions
	byteCount     int                                    // of all objects
	nodeSent      bool
	responded     bool // the server sent a response
	complete      bool // the Full batch was sent
}

// subscription is the state of one type URL.
type subscription struct {
	typeURL   string
	kind      config.KindInfo
	requested bool
	responded bool
	version   string              // last accepted version; only for state of the world
	rejected  time.Time           // when a response was last rejected
	resources map[string]received // by name
}

// received describes the last version of a resource.
type received struct {
	group   string
	hash    uint64
	size    int
	invalid bool
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

// run connects and serves the stream until it ends. It returns the reason.
func (st *stream) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	conn, closeConn, err := st.src.connect(ctx)
	if err != nil {
		cancel()
		return err
	}
	messages, ended := make(chan *discoveryv3.DeltaDiscoveryResponse), make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- receive(ctx, conn, messages)
	}()
	defer func() { cancel(); closeConn(); <-done }()
	err = st.serve(ctx, conn, messages, ended)
	for errors.Is(err, io.EOF) { // SendMsg returns io.EOF if the stream is broken; RecvMsg returns the reason
		select {
		case err = <-ended:
		case <-messages:
		}
	}
	return err
}

// serve subscribes to all kinds and handles messages until the stream ends.
func (st *stream) serve(
	ctx context.Context, conn wire, messages <-chan *discoveryv3.DeltaDiscoveryResponse, ended <-chan error,
) error {
	for _, versions := range st.kinds {
		if err := st.subscribe(conn, versions[0]); err != nil {
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
		case m := <-messages:
			if err := st.handle(ctx, conn, m); err != nil {
				return err
			}
		}
	}
}

// receive forwards messages until the stream ends, and returns the reason.
func receive(ctx context.Context, conn wire, messages chan<- *discoveryv3.DeltaDiscoveryResponse) error {
	for {
		m, err := conn.receive()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("the server closed the stream")
			}
			return err
		}
		select {
		case messages <- m:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// overdue returns an error if a kind has no response after AnswerWait.
func (st *stream) overdue() error {
	missing := st.missingKinds()
	switch {
	case st.complete, len(missing) == 0:
		return nil
	case !st.responded:
		return fmt.Errorf("%w within %s", errSilent, st.src.cfg.AnswerWait)
	}
	return fmt.Errorf("no response for %d kinds within %s, the first is %s",
		len(missing), st.src.cfg.AnswerWait, missing[0])
}

// missingKinds lists the kinds without a response.
func (st *stream) missingKinds() (out []config.Kind) {
	for _, versions := range st.kinds {
		if slices.ContainsFunc(versions, func(s *subscription) bool { return s.requested && !s.responded }) {
			out = append(out, versions[0].kind.Kind)
		}
	}
	return out
}

// subscribe sends the first request for a type.
func (st *stream) subscribe(conn wire, sub *subscription) error {
	sub.requested = true
	return st.send(conn, sub, "", nil)
}

// send sends a request. Without a nonce it subscribes; with one it acknowledges or rejects that
// response.
func (st *stream) send(conn wire, sub *subscription, nonce string, rejection *rpcstatus.Status) error {
	r := request{typeURL: sub.typeURL, version: sub.version, nonce: nonce, rejection: rejection}
	if !st.nodeSent {
		r.node, st.nodeSent = st.src.node, true
	}
	return conn.send(r)
}

// handle applies one response, acknowledges or rejects it, and publishes the changes.
func (st *stream) handle(ctx context.Context, conn wire, a *discoveryv3.DeltaDiscoveryResponse) error {
	receivedAt := time.Now()
	st.responded = true
	sub := st.subscriptions[a.TypeUrl]
	if sub == nil || !sub.requested {
		st.src.cfg.Log.Debug("ignored a response for a type without a subscription", "type", clip(a.TypeUrl))
		return nil
	}
	changed, removed, problems, err := st.apply(sub, a)
	if err != nil {
		return err
	}
	sub.responded = true
	if err := st.acknowledge(conn, sub, a, problems); err != nil {
		return err
	}
	if err := st.subscribeOlder(conn, sub); err != nil {
		return err
	}
	return st.publish(ctx, changed, removed, receivedAt)
}

// subscribeOlder tries the next older API version of a kind that has no resources so far. Servers
// send an empty response for versions that they do not know.
func (st *stream) subscribeOlder(conn wire, sub *subscription) error {
	for _, versions := range st.kinds {
		i := slices.Index(versions, sub)
		if i < 0 || i+1 == len(versions) || versions[i+1].requested ||
			slices.ContainsFunc(versions, func(s *subscription) bool { return len(s.resources) > 0 }) {
			continue
		}
		return st.subscribe(conn, versions[i+1])
	}
	return nil
}

// apply updates the subscription, and returns the changed and removed groups. problems has the
// errors of invalid resources.
func (st *stream) apply(sub *subscription, a *discoveryv3.DeltaDiscoveryResponse) (
	changed []feed.Update[*config.Object], removed []string, problems []feed.Problem, err error,
) {
	unchanged := map[string]bool{}
	remove := func(name string) {
		if old, ok := sub.resources[name]; ok {
			delete(sub.resources, name)
			st.objectCount, st.byteCount = st.objectCount-1, st.byteCount-old.size
			if !st.hasResource(sub.kind.Kind, name) {
				removed = append(removed, old.group)
			}
		}
	}
	for _, it := range a.Resources {
		r := item{kind: sub.kind, name: it.Name, typeURL: it.Resource.GetTypeUrl(), raw: it.Resource.GetValue()}
		now := received{hash: r.sum(), size: len(r.raw)}
		if old, known := sub.resources[r.name]; known && r.name != "" && !old.invalid && old.hash == now.hash {
			unchanged[r.name] = true // over state of the world, most resources are unchanged
			continue
		}
		u := r.update(st.src.Name(), st.src.cfg.Revision)
		name := r.id()
		unchanged[name] = true
		old, known := sub.resources[name]
		now.group, now.invalid = u.Group, feed.Errors(u.Problems) > 0
		st.byteCount += now.size - old.size
		if !known {
			st.objectCount++
		}
		sub.resources[name] = now
		for _, p := range u.Problems {
			if p.IsError() {
				problems = append(problems, p)
			}
		}
		if !known || old.hash != now.hash {
			changed = append(changed, u)
		}
	}
	if most := st.src.cfg.MaxObjects; st.objectCount > most {
		return nil, nil, nil, fmt.Errorf("more than %d objects: subscribe to fewer kinds",
			most)
	}
	if most := 4 * st.src.cfg.MaxMessage; st.byteCount > most {
		return nil, nil, nil, fmt.Errorf(
			"objects have more than %d bytes: subscribe to fewer kinds", most)
	}
	for _, name := range a.RemovedResources {
		remove(name)
	}
	if st.src.stateOfTheWorld {
		for _, name := range slices.Sorted(maps.Keys(sub.resources)) {
			if !unchanged[name] {
				remove(name)
			}
		}
	}
	return changed, removed, problems, nil
}

// hasResource reports whether any API version of a kind has the resource.
func (st *stream) hasResource(kind config.Kind, name string) bool {
	for _, sub := range st.subscriptions {
		if _, ok := sub.resources[name]; ok && sub.kind.Kind == kind {
			return true
		}
	}
	return false
}

// maxProblems limits the problems in a rejection.
const maxProblems = 20

// acknowledge accepts a response, or rejects it with the problems. Some servers send a rejected
// response again at once. So a type is rejected at most once a second, and further invalid responses
// are acknowledged.
func (st *stream) acknowledge(
	conn wire, sub *subscription, a *discoveryv3.DeltaDiscoveryResponse, problems []feed.Problem,
) error {
	if a.Nonce == "" {
		return nil
	}
	now := time.Now()
	if len(problems) == 0 || now.Sub(sub.rejected) < time.Second {
		sub.version = a.SystemVersionInfo
		return st.send(conn, sub, a.Nonce, nil)
	}
	sub.rejected = now
	text := fmt.Sprintf("invalid resources (%d): ", len(problems))
	for i, p := range problems[:min(maxProblems, len(problems))] {
		if i > 0 {
			text += "; "
		}
		text += clip(p.String())
	}
	st.src.cfg.Log.Warn("the server sent invalid objects", "server", st.src.cfg.Address,
		"type", sub.typeURL, "count", len(problems), "first", problems[0].String())
	return st.send(conn, sub, a.Nonce, &rpcstatus.Status{Code: int32(codes.InvalidArgument),
		Message: strings.ToValidUTF8(text, "?")})
}

// publish sends one Full batch once every kind has a response, and after that the changes of each
// response. Removals by name are explicit.
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
		if len(st.missingKinds()) > 0 {
			return nil
		}
		b := feed.Batch[*config.Object]{Full: true, Since: since}
		for _, group := range slices.Sorted(maps.Keys(st.pending)) {
			b.Updates = append(b.Updates, st.pending[group])
		}
		st.pending, st.complete = nil, true
		st.src.cfg.Log.Info("connected to the server", "server", st.src.cfg.Address, "objects", st.objectCount)
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
