package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// touch is whether we are in touch with the server, and what was told of it.
type touch struct {
	stream   bool // the server said something on the latest stream
	complete bool // and something about every kind

	// as told
	told  bool
	error string
	since time.Time
}

// outage is what is wrong, in one line with what to do.
func (s *Source) outage(why error) string {
	if why == nil {
		why = errors.New("it ended the stream")
	}
	if own, ok := errors.AsType[fileError](why); ok {
		return fmt.Sprintf("%s is not asked, for our own files of TLS cannot be used (%s): mend the file, or the setting that names it", s.other(), reason(own))
	}
	if s.cfg.Protocol == ResourceSink {
		text, todo := reason(why), "start it, or see its log"
		if s.strayed.text != "" {
			text, todo = text+"; "+s.strayed.text, "have the one call that may, or let that one"
		}
		return fmt.Sprintf("no source of configuration is connected to %s (%s): %s", s.cfg.Address, text, todo)
	}
	text := reason(why)
	return fmt.Sprintf("%s cannot be asked (%s): %s", s.other(), text, s.todo(status.Code(why), text))
}

// todo is what to do about an outage.
func (s *Source) todo(code codes.Code, text string) string {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case code == codes.Unauthenticated || code == codes.PermissionDenied: // it answers, and may speak of a certificate: of ours
		return "see certFile, keyFile and namespace: the server must know who asks, and let them"
	case has("remote error: tls:"): // the other side says so
		return "it refused the connection while that began: see certFile and keyFile, which it may not take or miss, and serverName"
	case has("certificate", "x509:", "tls:"):
		return "see caFile, serverName and certFile"
	case has(tooManyPings):
		return "it wants to be asked more seldom whether it lives, and is, from the next connection on"
	case code == codes.Unimplemented:
		return "see protocol, and that it serves configuration at this address"
	case code == codes.ResourceExhausted:
		return "see maxMessage"
	// With TLS 1.3 a server looks at our certificate when we have begun to speak already, and what it says of that may be lost.
	case !s.cfg.Plaintext && !s.touch.stream && has("broken pipe", "connection reset", "EOF"):
		return "it ended the connection before it said anything, as one does that does not take the certificate which is shown, or misses one: see certFile and keyFile, that it runs, and its log"
	}
	return "see that it runs, and its log"
}

// other is who is on the other side, for people.
func (s *Source) other() string {
	if s.cfg.Protocol == ResourceSink {
		return "the source that calls " + s.cfg.Address
	}
	return "the server " + s.cfg.Address
}

// end is what the address is of, in the log.
func (s *Source) end() string {
	if s.cfg.Protocol == ResourceSink {
		return "called at"
	}
	return "server"
}

// reason is an error without what gRPC puts around it, on one line.
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
	return clip(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " "))
}

// stand tells how the source stands, if that is new; empty: it is in touch. False: ctx ended.
func (s *Source) stand(ctx context.Context, out chan<- feed.Batch[*config.Object], wrong string) bool {
	if s.touch.told && s.touch.error == wrong {
		return true
	}
	was := s.touch.error
	s.touch.told, s.touch.error = true, wrong
	now := time.Now()
	if may, silent := s.logged.Allow("standing", now); may && wrong != "" {
		s.cfg.Log.Warn("not in touch", "error", wrong, "not logged before", silent)
	} else if may {
		s.cfg.Log.Info("in touch", s.end(), s.cfg.Address, "objects", s.content.total, "not logged before", silent)
	}
	if s.touch.since.IsZero() || (was == "") != (wrong == "") {
		s.touch.since = now
	}
	return s.send(ctx, out, feed.Batch[*config.Object]{Standing: &feed.Standing{Error: wrong, Since: s.touch.since}, Since: now})
}

// send hands a batch over; false: ctx ended.
func (s *Source) send(ctx context.Context, out chan<- feed.Batch[*config.Object], b feed.Batch[*config.Object]) bool {
	b.Source = s.Name()
	select {
	case out <- b:
		return true
	case <-ctx.Done():
		return false
	}
}
