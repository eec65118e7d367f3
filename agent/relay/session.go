package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

const (
	// maxTypes is the maximum number of types of one stream of Envoy.
	maxTypes = 32
	// pruneGap is the interval at which the cache drops what only an earlier Envoy had.
	pruneGap = time.Minute
)

// session is one stream of Envoy. One goroutine, run, owns it.
type session struct {
	relay *Relay            // immutable
	envoy grpc.ServerStream // immutable

	requests chan []byte // written and closed by receive
	readErr  error       // readable once requests is closed

	node   []byte    // of Envoy, encoded
	link   *link     // the link of up; nil: none
	up     *upstream // nil: none
	nonces int       // of responses from the cache

	// relay.mu guards the following field for other goroutines: run holds it while it writes.
	subs []*subscription // in the order in which Envoy asked
}

// Register adds the discovery service to Envoy's server, which has to use Codec. It serves
// incremental ADS only.
func (r *Relay) Register(g *grpc.Server) {
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "DeltaAggregatedResources", Handler: r.serve, ServerStreams: true, ClientStreams: true},
		},
		Metadata: "envoy/service/discovery/v3/ads.proto",
	}, r)
}

// serve serves one stream until it ends.
func (r *Relay) serve(_ any, envoy grpc.ServerStream) error {
	s := &session{relay: r, envoy: envoy, requests: make(chan []byte)}
	go receive(envoy, envoy.Context().Done(), s.requests, &s.readErr)
	r.mu.Lock()
	r.sessions = append(r.sessions, s)
	r.mu.Unlock()
	err := s.run(envoy.Context())
	s.up.close()
	r.mu.Lock()
	r.sessions = slices.DeleteFunc(r.sessions, func(o *session) bool { return o == s })
	r.mu.Unlock()
	r.log.Debug("stream of Envoy ended", "reason", err)
	return err
}

// run handles one event at a time: a request, a response, another link, the end.
func (s *session) run(ctx context.Context) error {
	prune := time.NewTicker(s.relay.cfg.pruneGap)
	defer prune.Stop()
	for {
		changed, err := s.follow()
		if err != nil {
			return err
		}
		var responses <-chan []byte
		if s.up != nil {
			responses = s.up.responses
		}
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-changed:
		case <-prune.C:
			s.prune()
		case raw, ok := <-s.requests:
			if !ok && errors.Is(s.readErr, io.EOF) {
				return nil
			}
			if !ok {
				return s.readErr
			}
			err = s.request(raw)
		case raw, ok := <-responses:
			if !ok {
				err = s.abandon(s.up.err)
				break
			}
			err = s.response(raw)
		}
		if err != nil {
			return err
		}
	}
}

// follow moves the session to the link in use. changed is closed when there may be another one.
func (s *session) follow() (changed <-chan struct{}, err error) {
	r := s.relay
	r.mu.Lock()
	changed, link := r.changed, r.link
	r.mu.Unlock()
	if link == s.link {
		return changed, nil
	}
	s.link = link
	if link == nil {
		return changed, s.detach()
	}
	s.up.close()
	s.up = nil
	if len(s.subs) > 0 {
		err = s.attach()
	}
	return changed, err
}

// attach opens a stream on the link and subscribes to everything again.
func (s *session) attach() error {
	up, err := s.link.open()
	if err != nil {
		return s.abandon(err)
	}
	s.up = up
	for _, sub := range s.subs {
		sub.live = false
		s.subscribe(sub)
	}
	return nil
}

// abandon ends the link because of an error on this stream.
func (s *session) abandon(err error) error {
	s.link.fail(err)
	return s.detach()
}

// detach ends the stream to the control plane. From now on the cache answers.
func (s *session) detach() error {
	s.up.close()
	s.up = nil
	for _, sub := range s.subs {
		sub.live = false
		if err := s.fromCache(sub); err != nil {
			return err
		}
	}
	return nil
}

// subscribe sends the first request for a type to the control plane, unless nothing is subscribed.
func (s *session) subscribe(sub *subscription) {
	a := sub.ask(s.find(resource.ClusterType))
	if a == nil {
		return
	}
	if !s.up.opened {
		a.Node, s.up.opened = s.node, true
	}
	sub.live = true
	s.up.send(a.Encode())
}

// find returns the subscription to a type, nil when there is none.
func (s *session) find(typeURL string) *subscription {
	if i := slices.IndexFunc(s.subs, func(sub *subscription) bool { return sub.typeURL == typeURL }); i >= 0 {
		return s.subs[i]
	}
	return nil
}

// request handles a request of Envoy and passes it on.
func (s *session) request(raw []byte) error {
	r, err := ads.ReadRequest(raw, false)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if s.node == nil {
		if r.Node == nil {
			return status.Error(codes.InvalidArgument, "the first request of a stream has to carry a node")
		}
		s.node = slices.Clone(r.Node)
	}
	sub := s.find(r.TypeURL)
	first := sub == nil
	if first && len(s.subs) == maxTypes {
		return status.Errorf(codes.ResourceExhausted, "a stream may subscribe to %d types", maxTypes)
	}
	s.relay.mu.Lock()
	if first {
		sub = newSubscription(r.TypeURL)
		s.subs = append(s.subs, sub)
	}
	if first || r.Renames() {
		sub.subscribe(r, first)
	}
	answered := sub.answer(r.Nonce, r.Rejected)
	s.relay.mu.Unlock()
	if len(sub.names) > maxNames {
		return status.Errorf(codes.ResourceExhausted, "a subscription may have %d names", maxNames)
	}
	if answered != nil {
		s.answered(sub, answered, r.Rejected)
	}
	switch {
	case s.up == nil && s.link != nil && s.link.ctx.Err() == nil:
		return s.attach() // the first request of the stream
	case s.up == nil:
		if first || r.Renames() {
			return s.fromCache(sub)
		}
	case !sub.live:
		s.subscribe(sub)
	case r.Nonce == "" || answered != nil && answered.from == s.up:
		s.up.send(raw)
	case r.Renames(): // it has the nonce of another stream
		s.up.send(renaming(r).Encode())
	}
	return nil
}

// renaming returns the changes of names in a request, without its acknowledgement.
func renaming(r *ads.Request) *ads.Ask {
	return &ads.Ask{TypeURL: r.TypeURL, Subscribe: r.Subscribe(), Unsubscribe: r.Unsubscribe}
}

// answered handles Envoy's answer to a response.
func (s *session) answered(sub *subscription, r *response, rejected *ads.Rejection) {
	switch {
	case rejected != nil:
		s.relay.log.Warn("Envoy rejected resources", "type", shortType(sub.typeURL), "error", rejected.Message)
	case r.from != nil && s.newest():
		s.relay.cache.put(r.Reply, sub.all, sub.wants)
	}
}

// newest reports whether no Envoy connected after this one.
func (s *session) newest() bool {
	r := s.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[len(r.sessions)-1] == s
}

// response handles a response of the control plane and passes it on.
func (s *session) response(raw []byte) error {
	reply, err := ads.ReadReply(raw, false)
	if err != nil {
		return s.abandon(fmt.Errorf("a response that cannot be read: %w", err))
	}
	sub := s.find(reply.TypeURL)
	if sub == nil {
		return s.abandon(fmt.Errorf("a response of type %s, which was not requested", reply.TypeURL))
	}
	return s.send(sub, &response{reply, s.up}, raw)
}

// send sends a response to Envoy.
func (s *session) send(sub *subscription, r *response, raw []byte) error {
	s.relay.mu.Lock()
	sub.send(r)
	s.relay.mu.Unlock()
	return s.envoy.SendMsg(&Frame{Data: raw})
}

// fromCache sends Envoy the resources of a type that it lacks and the cache has. It sends an empty
// response only if Envoy has nothing and the type is known to be empty.
func (s *session) fromCache(sub *subscription) error {
	reply, all := s.relay.cache.reply(sub.typeURL, sub.lacks)
	nothing := sub.all && all && len(sub.claims)+len(sub.pending) == 0
	if len(reply.Items)+len(reply.Removed) == 0 && !nothing {
		return nil
	}
	return s.sendOwn(sub, reply)
}

// sendOwn sends a response that is not the control plane's.
func (s *session) sendOwn(sub *subscription, reply *ads.Reply) error {
	s.nonces++
	reply.Nonce = "agent-" + strconv.Itoa(s.nonces)
	return s.send(sub, &response{reply, nil}, reply.Encode())
}

// prune drops from the cache what this Envoy does not have. It does nothing while the cache serves
// Envoy, which may still be loading.
func (s *session) prune() {
	if s.up == nil || !s.newest() {
		return
	}
	s.relay.cache.retain(func(typeURL, name string) bool {
		sub := s.find(typeURL)
		if sub == nil || len(sub.claims) == 0 {
			return true // not subscribed, or not answered yet
		}
		_, has := sub.claims[name]
		return has
	})
}

// rejected returns the resources that Envoy rejected, with its messages. relay.mu is held.
func (s *session) rejected() []string {
	var out []string
	more := 0
	for _, sub := range s.subs {
		for _, name := range slices.Sorted(maps.Keys(sub.refused)) {
			if len(out) == maxRejected {
				more++
				continue
			}
			text := fmt.Sprintf("%s %s: %s", shortType(sub.typeURL), name, sub.refused[name])
			out = append(out, strings.ToValidUTF8(text[:min(len(text), maxRejectedText)], ""))
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}
