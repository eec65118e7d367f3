package mcp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// turnedGap is how often how a resource-sink stands may change by who is turned away: anybody may call.
	turnedGap = 10 * time.Second
	// turnedFresh is how long it is told who was turned away before the one that was connected went.
	turnedFresh = time.Minute
)

// turnedAway is a caller that was refused.
type turnedAway struct {
	text string    // "10.0.0.7 was turned away: …"
	at   time.Time // when it was; of the one that is told, when that began
}

// turnAway tells of a caller that was refused: in the log, and for Run. Safe for concurrent use.
func (s *Source) turnAway(from string, why error) {
	if passing(why) {
		return
	}
	now := time.Now()
	text := refusalOf(why)
	if may, silent := s.refused.Allow("turned away", now); may {
		s.cfg.Log.Warn("a caller was turned away", "caller", from, "reason", text, "address", s.cfg.Address, "not logged before", silent)
	}
	t := turnedAway{fmt.Sprintf("%s was turned away: %s", from, text), now}
	for { // the latest counts
		select {
		case s.away <- t:
			return
		default:
		}
		select {
		case <-s.away:
		default:
		}
	}
}

// passing says that somebody connected and went, as load balancers do that see whether somebody listens: nobody was refused.
func passing(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded)
}

// refusalOf says why a caller was refused, and which setting decides.
func refusalOf(err error) string {
	var unverified *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	text := reason(err)
	switch {
	case errors.As(err, &unverified) && len(unverified.UnverifiedCertificates) > 0:
		return fmt.Sprintf("the caller shows a certificate of %q (%s): see caFile", clip(strings.Join(names(tls.ConnectionState{PeerCertificates: unverified.UnverifiedCertificates}), ", ")), reason(unverified.Err))
	case errors.As(err, &noTLS):
		return fmt.Sprintf("it does not speak TLS (%s): have it do, or set plaintext", text)
	case strings.Contains(text, "remote error:"):
		return fmt.Sprintf("it does not take our certificate (%s): see certFile, and what it trusts", text)
	}
	return text
}

// stranger has how the source stands tell of a caller that was refused while nobody is connected. Run's.
func (s *Source) stranger(t turnedAway, now time.Time) {
	if now.Sub(t.at) <= turnedFresh {
		s.strayed = turnedAway{t.text, now}
	}
}

// elsewhere refuses a caller that wants something else than to bring resources.
func (s *Source) elsewhere(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	err := fmt.Errorf("it called %q, and a resource-sink is called by istio.mcp.v1alpha1.ResourceSink alone: see protocol", clip(method))
	s.turnAway(s.caller(stream), err)
	return status.Error(codes.Unimplemented, err.Error())
}

// hostOf is an address without its port.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
