package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/internal/connlimit"
	"github.com/ashore-mesh/ashore/internal/httpserver"
	"github.com/ashore-mesh/ashore/internal/ratelimit"
)

const (
	// The defaults of Config.
	defaultMaxBytes    = 1 << 20
	defaultTimeout     = 10 * time.Second
	defaultRate        = 500
	defaultRequests    = 256
	defaultConnections = 512

	// headerTime is how long TLS and the head of a request may take.
	headerTime = 5 * time.Second
	// idleTime is how long a connection may be without a request: API servers keep theirs.
	idleTime = 2 * time.Minute
	// drainTime is how long requests may take to end by themselves when the server does.
	drainTime = 2 * time.Second
)

// Config configures a Server.
type Config struct {
	// Listener is where it is reached, without TLS; Run closes it.
	Listener net.Listener
	// Certificate returns the server's certificate. It is called for each handshake, so a renewed
	// certificate is used at once.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// MaxBytes is how large the body of a request may be, and how many bytes are parsed at once. A
	// text made for it can cost some 200 times its size in memory. Zero: 1 MiB.
	MaxBytes int64
	// Timeout is how long the body of a request may take to arrive, and how long it may then wait
	// for the parser. Zero: 10s, as long as API servers wait.
	Timeout time.Duration
	// Rate is how many requests a second one address may make (of IPv6: the 64 bits of a network),
	// ten seconds' worth of them at once. Zero: 500.
	Rate int
	// Requests is how many there may be at once; each may hold MaxBytes of memory. Zero: 256.
	Requests int
	// Connections is how many there may be at once, half of them from one address. More are
	// refused. Zero means 512.
	Connections int
	// Log is required.
	Log hclog.Logger
	// Registerer takes the metrics; nil: there are none.
	Registerer prometheus.Registerer
}

// Server validates configuration.
type Server struct {
	config  Config // set once
	gate    *gate
	conns   *connlimit.Listener
	metrics *metrics
	log     *ratelimit.Logger // of refusals
}

// New makes a server.
func New(c Config) *Server {
	c.MaxBytes, c.Timeout = cmp.Or(c.MaxBytes, defaultMaxBytes), cmp.Or(c.Timeout, defaultTimeout)
	c.Rate, c.Requests, c.Connections = cmp.Or(c.Rate, defaultRate), cmp.Or(c.Requests,
		defaultRequests), cmp.Or(c.Connections, defaultConnections)
	s := &Server{config: c, gate: newGate(c), log: ratelimit.NewLogger(c.Log),
		conns: connlimit.New(c.Listener, c.Connections, (c.Connections+1)/2)}
	s.metrics = newMetrics(c.Registerer, s.conns)
	return s
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	return httpserver.Run(ctx, s.http(), s.conns, drainTime)
}

// http is the server as net/http wants it.
func (s *Server) http() *http.Server {
	return &http.Server{
		Handler:           s,
		TLSConfig:         s.tls(),
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       headerTime + s.config.Timeout,
		WriteTimeout:      headerTime + 3*s.config.Timeout, // the body comes, waits for its turn, and is answered
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    16 << 10,
		// What a connection may send unread is memory too.
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 100, MaxReceiveBufferPerConnection: 128 << 10,
			MaxReceiveBufferPerStream: 64 << 10},
		ErrorLog: s.config.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
}

// tls asks for no client certificate: API servers have none by default. Each connection uses the
// server's current certificate.
func (s *Server) tls() *tls.Config {
	return &tls.Config{GetCertificate: s.config.Certificate, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"}, SessionTicketsDisabled: true}
}
