package relay

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// session is one stream of Envoy. It passes frames between Envoy and one link, or answers from the
// cache while there is none. It ends when the link does, or when there is another one. Envoy then
// opens the next stream and claims the versions that it has. One goroutine, run, owns it.
type session struct {
	relay *Relay            // immutable
	envoy grpc.ServerStream // immutable
	link  *link             // immutable; nil: the cache answers
	up    *upstream         // nil without a link

	nonces int // of responses from the cache

	subs map[string]*subscription // by type; run writes it, with relay.mu held
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
	s := &session{relay: r, envoy: envoy, subs: map[string]*subscription{}}
	r.mu.Lock()
	s.link = r.link
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

// errMoved ends a session when Envoy has to open another stream.
var errMoved = status.Error(codes.Unavailable, "the connection to the control plane changed")

// run handles one event at a time: a request, a response, another link, the end.
func (s *session) run(ctx context.Context) (err error) {
	requests, readErr := receive(s.envoy, ctx.Done())
	var responses <-chan []byte
	if s.link != nil {
		if s.up, err = s.link.open(); err != nil {
			s.link.fail(err)
			return errMoved
		}
		responses = s.up.responses
	}
	for {
		s.relay.mu.Lock()
		changed, link := s.relay.changed, s.relay.link
		s.relay.mu.Unlock()
		if link != s.link {
			return errMoved
		}
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-changed:
		case raw, ok := <-requests:
			if !ok && errors.Is(*readErr, io.EOF) {
				return nil
			}
			if !ok {
				return *readErr
			}
			err = s.request(raw)
		case raw, ok := <-responses:
			if !ok {
				s.link.fail(*s.up.err)
				return errMoved
			}
			err = s.response(raw)
		}
		if err != nil {
			return err
		}
	}
}

// request handles a request of Envoy.
func (s *session) request(raw []byte) error {
	r, err := ads.ReadRequest(raw, false)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	sub, first := s.subscribe(r)
	if s.up != nil {
		s.up.send(raw)
	} else if first || r.Renames() {
		return s.fromCache(sub)
	}
	return nil
}

// subscribe records the names and the answer in a request. first says that it is the first request
// of its type.
func (s *session) subscribe(r *ads.Request) (sub *subscription, first bool) {
	s.relay.mu.Lock()
	defer s.relay.mu.Unlock()
	sub = s.subs[r.TypeURL]
	if first = sub == nil; first {
		sub = newSubscription(r.TypeURL)
		s.subs[r.TypeURL] = sub
	}
	rejected := s.relay.rejected
	if first && len(r.Claims) == 0 {
		sub.newEnvoy = true
		rejected.drop(r.TypeURL, everything)
	}
	if first || r.Renames() {
		sub.subscribe(r, first)
		rejected.drop(r.TypeURL, func(name string) bool { return !sub.wants(name) })
	}
	answered := sub.answer(r.Nonce)
	switch {
	case answered == nil:
	case r.Rejected != nil:
		rejected.add(answered, r.Rejected.Message)
		s.relay.log.Warn("Envoy rejected resources", "type", shortType(r.TypeURL), "error", r.Rejected.Message)
	default:
		names := namesOf(answered)
		rejected.drop(r.TypeURL, func(name string) bool { return slices.Contains(names, name) })
		if s.up != nil && s.newest() {
			s.relay.cache.put(answered, sub)
		}
		sub.newEnvoy = false
	}
	return sub, first
}

// newest reports whether no Envoy connected after this one. relay.mu is held.
func (s *session) newest() bool {
	sessions := s.relay.sessions
	return sessions[len(sessions)-1] == s
}

// response handles a response of the control plane and passes it on.
func (s *session) response(raw []byte) error {
	reply, err := ads.ReadReply(raw, false)
	if err != nil {
		s.link.fail(err)
		return errMoved
	}
	return s.send(reply, raw)
}

// send sends a response to Envoy.
func (s *session) send(reply *ads.Reply, raw []byte) error {
	s.relay.mu.Lock()
	if sub := s.subs[reply.TypeURL]; sub != nil {
		sub.send(reply)
	}
	s.relay.mu.Unlock()
	return s.envoy.SendMsg(&Frame{Data: raw})
}

// fromCache sends Envoy the resources of a type that it lacks and the cache has. It sends an empty
// response only if Envoy has nothing and the type is known to be empty.
func (s *session) fromCache(sub *subscription) error {
	reply, all := s.relay.cache.reply(sub.typeURL, sub.lacks)
	nothing := sub.all && all && len(sub.has)+len(sub.pending) == 0
	if len(reply.Items)+len(reply.Removed) == 0 && !nothing {
		return nil
	}
	s.nonces++
	reply.Nonce = "agent-" + strconv.Itoa(s.nonces)
	return s.send(reply, reply.Encode())
}
