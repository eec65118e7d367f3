package relay

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// session is one stream of Envoy. It passes messages between Envoy and one link, or answers from the
// cache while there is none. It ends when the link does, or when there is another one. Envoy then
// opens the next stream and claims the versions that it has. One goroutine, run, owns it.
type session struct {
	relay *Relay      // immutable
	envoy envoyStream // immutable
	link  *link       // immutable; nil: the cache answers
	up    *upstream   // nil without a link

	nonces int // of responses from the cache

	subs map[string]*subscription // by type; run writes it, with relay.mu held
}

// service is the discovery service of a relay: incremental ADS only.
type service struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	relay *Relay
}

// Register adds the discovery service to Envoy's server.
func (r *Relay) Register(g *grpc.Server) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, service{relay: r})
}

// DeltaAggregatedResources serves one stream until it ends.
func (v service) DeltaAggregatedResources(envoy envoyStream) error {
	r := v.relay
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
	requests, readErr := receive(s.envoy.Recv, ctx.Done())
	var responses <-chan *response
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
		case r, ok := <-requests:
			if !ok && errors.Is(*readErr, io.EOF) {
				return nil
			}
			if !ok {
				return *readErr
			}
			err = s.request(r)
		case reply, ok := <-responses:
			if !ok {
				s.link.fail(*s.up.err)
				return errMoved
			}
			err = s.send(reply)
		}
		if err != nil {
			return err
		}
	}
}

// request handles a request of Envoy.
func (s *session) request(r *request) error {
	if r.TypeUrl == "" || len(r.ResourceLocatorsSubscribe) > 0 { // the control plane would end the link
		return status.Error(codes.InvalidArgument, "a request needs a type_url, and resource names instead of locators")
	}
	sub, first := s.subscribe(r)
	if s.up != nil {
		s.up.send(r)
	} else if first || renames(r) {
		return s.fromCache(sub)
	}
	return nil
}

// subscribe records the names and the answer in a request. first says that it is the first request
// of its type.
func (s *session) subscribe(r *request) (sub *subscription, first bool) {
	s.relay.mu.Lock()
	defer s.relay.mu.Unlock()
	sub = s.subs[r.TypeUrl]
	if first = sub == nil; first {
		sub = newSubscription(r.TypeUrl)
		s.subs[r.TypeUrl] = sub
	}
	rejected := s.relay.rejected
	if first && len(r.InitialResourceVersions) == 0 {
		sub.newEnvoy = true
		rejected.drop(r.TypeUrl, everything)
	}
	if first || renames(r) {
		sub.subscribe(r, first)
		rejected.drop(r.TypeUrl, func(name string) bool { return !sub.wants(name) })
	}
	answered := sub.answer(r.ResponseNonce)
	switch {
	case answered == nil:
	case r.ErrorDetail != nil:
		rejected.add(answered, r.ErrorDetail.Message)
		s.relay.log.Warn("Envoy rejected resources", "type", shortType(r.TypeUrl), "error", r.ErrorDetail.Message)
	default:
		names := namesOf(answered)
		rejected.drop(r.TypeUrl, func(name string) bool { return slices.Contains(names, name) })
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

// send sends a response to Envoy.
func (s *session) send(reply *response) error {
	s.relay.mu.Lock()
	if sub := s.subs[reply.TypeUrl]; sub != nil {
		sub.send(reply)
	}
	s.relay.mu.Unlock()
	return s.envoy.Send(reply)
}

// fromCache sends Envoy the resources of a type that it lacks and the cache has. It sends an empty
// response only if Envoy has nothing and the type is known to be empty.
func (s *session) fromCache(sub *subscription) error {
	reply, all, err := s.relay.cache.reply(sub.typeURL, sub.lacks)
	if err != nil {
		return err
	}
	nothing := sub.all && all && len(sub.has)+len(sub.pending) == 0
	if len(reply.Resources)+len(reply.RemovedResources) == 0 && !nothing {
		return nil
	}
	s.nonces++
	reply.Nonce = "agent-" + strconv.Itoa(s.nonces)
	return s.send(reply)
}
