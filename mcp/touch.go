package mcp

import (
	"context"
	"errors"
	"fmt"
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
	if s.cfg.Protocol == ResourceSink {
		text, todo := reason(why), "start it, or see its log"
		if s.strayed.text != "" {
			text, todo = text+"; "+s.strayed.text, "have the one call that may, or let that one"
		}
		return fmt.Sprintf("no source of configuration is connected to %s (%s): %s", s.cfg.Address, text, todo)
	}
	todo := "see that it runs, and its log"
	switch status.Code(why) {
	case codes.Unauthenticated, codes.PermissionDenied:
		todo = "see certFile, keyFile and namespace: the server must know who asks, and let them"
	case codes.Unimplemented:
		todo = "see protocol, and that it serves configuration at this address"
	case codes.ResourceExhausted:
		todo = "see maxMessage"
	}
	text := reason(why)
	if strings.Contains(text, tooManyPings) {
		todo = "it wants to be asked more seldom whether it lives, and is, from the next connection on"
	}
	if strings.Contains(text, "certificate") || strings.Contains(text, "x509:") || strings.Contains(text, "tls:") {
		todo = "see caFile, serverName and certFile"
	}
	return fmt.Sprintf("the server %s cannot be asked (%s): %s", s.cfg.Address, text, todo)
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
	if may, silent := s.logged.Take("standing", now); may && wrong != "" {
		s.cfg.Log.Warn("not in touch", "error", wrong, "not logged before", silent)
	} else if may {
		s.cfg.Log.Info("in touch", "server", s.cfg.Address, "objects", s.content.total, "not logged before", silent)
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
