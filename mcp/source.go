package mcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec for everything but frames
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/ratelimit"
	"github.com/ashore-mesh/ashore/mcp/legacypb"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// Source is the configuration of another control plane. It keeps what a server said while the server is away, and says
// so; it says nothing at all before the server answered about every kind once.
type Source struct {
	cfg   Config                                                      // set once
	node  []byte                                                      // set once: the encoded node, over xDS
	dial  func(ctx context.Context, address string) (net.Conn, error) // set once
	calls chan *call                                                  // written by called, read by Run
	away  chan turnedAway                                             // cap 1; written by turnAway, read by Run
	parts sync.WaitGroup

	logged  ratelimit.Limiter // what is logged how often; safe for concurrent use
	refused ratelimit.Limiter // the same of callers that were turned away

	// the following belong to Run
	content *content
	touch   touch
	waits   backoff
	pings   pings
	bare    lapse           // while nothing was ever listed: for how long that has to stand
	states  bool            // over xDS: state of the world is tried next
	mute    error           // why it is, where a server took the call for differences and said nothing
	streams uint64          // so far
	unknown map[string]bool // collections that the server does not know
	told    bool            // the first complete state was sent
	next    *call           // the caller that takes the place of the one before
	rivals  rivals          // callers that do so again and again
	returns rivals          // callers that take their own place again and again
	absent  error           // why nobody is connected who calls
	strayed turnedAway      // who tried meanwhile
}

var _ config.Source = (*Source)(nil)

// New makes a source; Run starts it. Errors name the setting that is wrong.
func New(cfg Config) (*Source, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	node, err := nodeOf(cfg.NodeID, cfg.Namespace, cfg.Revision)
	if err != nil {
		return nil, fmt.Errorf("revision: %w", err)
	}
	s := &Source{cfg: cfg, node: node, dial: dial, calls: make(chan *call), away: make(chan turnedAway, 1), refused: ratelimit.Limiter{Burst: 10, Every: time.Minute}, unknown: map[string]bool{}, states: cfg.Protocol == XDSState}
	s.content = newContent(rules{source: s.Name(), revision: cfg.Revision, aliases: !cfg.legacy(), keep: cfg.Emptied == Keep, emptyAfter: cfg.EmptyAfter, most: cfg.MaxObjects, bytes: 4 * cfg.MaxMessage})
	return s, nil
}

// Name identifies the source to people: "mcp:galley".
func (s *Source) Name() string { return sourcePrefix + s.cfg.Name }

// CheckFiles says which of the files of TLS cannot be used now.
func (s *Source) CheckFiles() error {
	_, wrongCA := s.cfg.authorities()
	_, wrong := s.cfg.certificates()
	return errors.Join(wrongCA, wrong)
}

// sourcePrefix begins the name of each source of this kind.
const sourcePrefix = "mcp:"

// Named says whether a source of that name is one of this kind.
func Named(source string) bool { return strings.HasPrefix(source, sourcePrefix) }

// Run is feed.Source's.
func (s *Source) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	defer s.parts.Wait()
	if s.cfg.Protocol == ResourceSink {
		return s.listen(ctx, out)
	}
	for ctx.Err() == nil {
		why := s.call(ctx, out)
		if ctx.Err() != nil {
			break
		}
		if s.turned(why) {
			s.ended()
			continue
		}
		if !s.lost(ctx, out, s.cause(why)) || !sleep(ctx, s.waits.next()) {
			break
		}
	}
	return nil
}

// sleep waits; false: ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// errMute is the reason why a stream ended on which a server said nothing.
var errMute = errors.New("it answers nothing")

// turned says that another way is to be tried at once: state of the world where a server does no differences, or without
// the collection that it does not know.
func (s *Source) turned(why error) bool {
	switch {
	case s.cfg.Protocol == XDS && (status.Code(why) == codes.Unimplemented || errors.Is(why, errMute)):
		s.states = !s.states // neither is for ever: servers change
		if s.states {
			if s.mute = nil; errors.Is(why, errMute) {
				s.mute = why
			}
			s.cfg.Log.Info("the server sends no differences, state of the world is tried", "server", s.cfg.Address, "error", why)
		}
		return s.states
	case s.cfg.Protocol == ResourceSource && status.Code(why) == codes.InvalidArgument:
		for _, l := range s.collections() {
			if strings.Contains(why.Error(), l.name) {
				s.cfg.Log.Warn("the server does not know a collection, it is not asked for", "server", s.cfg.Address, "collection", l.name, "error", why)
				s.unknown[l.name] = true
				return true
			}
		}
	}
	return false
}

// cause is why a server cannot be asked. One that has differences alone, and answers nothing there, does not lack the protocol.
func (s *Source) cause(why error) error {
	mute := s.mute
	s.mute = nil
	if mute != nil && status.Code(why) == codes.Unimplemented {
		return mute
	}
	return why
}

// collections are those to ask for.
func (s *Source) collections() []list {
	lists, _ := collectionsOf(s.cfg.Collections) // they were checked
	return slices.DeleteFunc(lists, func(l list) bool { return s.unknown[l.name] })
}

// call connects and speaks until the stream ends.
func (s *Source) call(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	s.touch.stream = false
	creds, err := s.cfg.clientCredentials()
	if err != nil {
		return err
	}
	if s.cfg.legacy() && len(s.collections()) == 0 {
		clear(s.unknown)
		return errors.New("it knows none of the collections")
	}
	conn, err := grpc.NewClient("passthrough:///"+s.cfg.Address, grpc.WithTransportCredentials(creds), grpc.WithUserAgent("ashored"),
		grpc.WithContextDialer(s.dial), grpc.WithKeepaliveParams(s.pings.parameters()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.cfg.MaxMessage), grpc.ForceCodecV2(frames{encoding.GetCodecV2("proto")})),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 10 * time.Second}), grpc.WithNoProxy())
	if err != nil {
		return fmt.Errorf("address: %w", err)
	}
	defer func() { _ = conn.Close() }() // of what was sent nothing is owed any more
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, s.method())
	if err != nil {
		return err
	}
	return s.speak(ctx, cancel, stream, out)
}

// method is what is called.
func (s *Source) method() string {
	switch {
	case s.cfg.Protocol == ResourceSource:
		return legacypb.ResourceSource_EstablishResourceStream_FullMethodName
	case s.states:
		return "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	}
	return "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
}

// session makes the session of a new stream.
func (s *Source) session() session {
	if s.cfg.legacy() {
		return newLegacySession(s.collections(), s.cfg.NodeID, !s.cfg.Full, s.cfg.mostNamed())
	}
	return newXDSSession(s.cfg.kinds(), s.states, s.node, ads.Limits{Names: s.cfg.mostNamed()}, func(name string) bool { return s.content.held(name) > 0 })
}

// lost tells that the stream ended and why; false: ctx ended.
func (s *Source) lost(ctx context.Context, out chan<- feed.Batch[*config.Object], why error) bool {
	if s.touch.complete {
		s.waits.reset()
		clear(s.unknown) // the next one may know them
	}
	if s.pings.calm(why) {
		s.cfg.Log.Info("the server wants to be asked more seldom whether it lives", "server", s.cfg.Address, "after", s.pings.gap)
	}
	s.ended()
	if errors.Is(why, errReplaced) {
		if may, silent := s.logged.Allow("replaced", time.Now()); may {
			s.cfg.Log.Info("a caller was sent away", "reason", why, "not logged before", silent)
		}
		return true // the other one is heard at once, and shows how we stand
	}
	return s.stand(ctx, out, s.outage(why))
}

// ended notes that there is no stream any more.
func (s *Source) ended() {
	s.content.lost(time.Now())
	s.touch.complete = false
}
