package mcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/excerpt"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Source is the configuration of another control plane.
type Source struct {
	cfg  Config                                                      // immutable
	node *corev3.Node                                                // immutable
	dial func(ctx context.Context, address string) (net.Conn, error) // immutable

	// stateOfTheWorld is whether the next stream uses state of the world. It belongs to Run.
	stateOfTheWorld bool
}

var _ config.Source = (*Source)(nil)

const (
	// firstRetry and lastRetry bound the wait between two connections. Source: Istio's client waits
	// 500ms to 60s.
	firstRetry, lastRetry = 500 * time.Millisecond, 30 * time.Second
)

// New returns a source. Call its Run. Errors name the setting that is wrong.
func New(cfg Config) (*Source, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	node, err := newNode(cfg.NodeID, cfg.Namespace, cfg.Revision)
	if err != nil {
		return nil, fmt.Errorf("revision: %w", err)
	}
	return &Source{cfg: cfg, node: node, dial: dial}, nil
}

// Name implements config.Source: Config.Name.
func (s *Source) Name() string { return s.cfg.Name }

// IsSource reports whether the source of that name is a Source.
func IsSource(name string) bool { return name == "mcp" || strings.HasPrefix(name, "mcp:") }

// errSilent means that the server answered nothing on a stream.
var errSilent = errors.New("it answers nothing")

// Run implements config.Source. It tries delta discovery first, and state of the world where the
// server does not support that.
func (s *Source) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	down := ""
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		st := newStream(s, out)
		err := st.run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if st.complete {
			wait, down = firstRetry, ""
		} else if status.Code(err) == codes.Unimplemented || errors.Is(err, errSilent) {
			s.stateOfTheWorld = !s.stateOfTheWorld // the server may support the other protocol alone
			if s.stateOfTheWorld {
				s.cfg.Log.Info("the server does not support delta discovery, trying state of the world",
					"server", s.cfg.Address, "error", err)
				continue
			}
		}
		text := s.explain(err, st.responded)
		if text != down {
			s.cfg.Log.Warn("disconnected from the server", "server", s.cfg.Address, "error", text)
			down = text
		}
		select {
		case out <- feed.Batch[*config.Object]{Source: s.Name(), Down: errors.New(text)}:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-ctx.Done():
			return nil
		}
	}
}

// connect opens a discovery stream; close ends its connection.
func (s *Source) connect(ctx context.Context) (w wire, close func(), err error) {
	creds, err := s.cfg.clientCredentials()
	if err != nil {
		return w, nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+s.cfg.Address,
		grpc.WithTransportCredentials(creds), grpc.WithUserAgent("ashored"),
		grpc.WithContextDialer(s.dial), grpc.WithKeepaliveParams(keepaliveParameters()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.cfg.MaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 10 * time.Second}))
	if err != nil {
		return w, nil, fmt.Errorf("address: %w", err)
	}
	method := "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	if s.stateOfTheWorld {
		method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		_ = conn.Close() // nothing was sent
		return w, nil, err
	}
	return wire{stream, s.stateOfTheWorld}, func() { _ = conn.Close() }, nil
}

// explain returns why the stream ended, and what to do. responded means that the server had sent a
// response on it.
func (s *Source) explain(err error, responded bool) string {
	var own fileError
	if errors.As(err, &own) {
		return fmt.Sprintf("our TLS files cannot be used (%s): repair the file, or the setting that names it",
			reason(err))
	}
	text := reason(err)
	remedy := s.remedy(status.Code(err), text, responded)
	return fmt.Sprintf("the server %s cannot be used (%s): %s", s.cfg.Address, text, remedy)
}

func (s *Source) remedy(code codes.Code, text string, responded bool) string {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case code == codes.Unauthenticated || code == codes.PermissionDenied:
		return "check certFile, keyFile and namespace: the server must know and accept our identity"
	case has("remote error: tls:"): // sent by the server
		return "the server refused our certificate or misses one: check certFile, keyFile and serverName"
	case has("certificate", "x509:", "tls:"):
		return "check caFile, serverName and certFile"
	case code == codes.Unimplemented:
		return "check that it serves configuration at this address"
	case code == codes.ResourceExhausted:
		return "subscribe to fewer kinds"
	// With TLS 1.3 a server checks our certificate after the handshake, and its error may be lost.
	case !s.cfg.Plaintext && !responded && has("broken pipe", "connection reset", "EOF"):
		return "it closed the connection at once, as a server does that refuses our certificate: " +
			"check certFile and keyFile, that it runs, and its log"
	}
	return "check that it runs, and its log"
}

// reason returns an error on one line, without the prefixes of gRPC.
func reason(err error) string {
	text := err.Error()
	if st, ok := status.FromError(err); ok && st.Code() != codes.OK {
		text = st.Message()
	}
	for _, before := range []string{`Error while dialing: `, `authentication handshake failed: `} {
		if _, cause, ok := strings.Cut(text, before); ok {
			text = strings.TrimSuffix(cause, `"`)
		}
	}
	return excerpt.Line(text, maxText)
}

// maxText is the longest text of the server in a message, in bytes.
const maxText = 200

// clip shortens a text from the server.
func clip(s string) string { return excerpt.Of(s, maxText) }
