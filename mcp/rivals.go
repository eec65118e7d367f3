package mcp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

const (
	// contest is how long it is remembered that a caller took the place of another one, and contests how often that is
	// within it before it is no more the return of one whose connection had died.
	contest  = 5 * time.Minute
	contests = 3
)

// errReplaced is why a caller is sent away when another one calls.
var errReplaced = errors.New("another caller took its place")

// rivals are callers that take one another's place. The zero value knows none.
type rivals struct {
	took  []time.Time // when a caller took the place of another one, the latest few
	names []string    // of the last two, sorted
}

// replaced takes note that a caller took the place of another one, or its own: whose connection died does that.
func (s *Source) replaced(before, after string, now time.Time) {
	if before == after {
		s.returns.note(before, after, now)
	} else {
		s.rivals.note(before, after, now)
	}
}

// note takes note that a caller took the place of another one.
func (r *rivals) note(before, after string, now time.Time) {
	r.took = append(r.took, now)
	r.took = r.took[max(0, len(r.took)-contests):]
	r.names = []string{before, after}
	slices.Sort(r.names)
}

// over is when callers count as rivals no more; zero: they do not by now.
func (r *rivals) over(now time.Time) time.Time {
	if len(r.took) < contests {
		return time.Time{}
	}
	first, last := r.took[0], r.took[len(r.took)-1]
	if end := last.Add(contest); last.Sub(first) <= contest && now.Before(end) {
		return end
	}
	return time.Time{}
}

// doubts says that callers are rivals, in one line with what to do; empty: they are not.
func (r *rivals) doubts(address string, now time.Time) string {
	if r.over(now).IsZero() {
		return ""
	}
	return fmt.Sprintf("callers of %s take one another's place, the last two are %s: one counts at a time, so have one alone call here, and give each other one a source with an address of its own", address, strings.Join(r.names, " and "))
}

// returned says that one caller takes its own place again and again, in one line with what to do; empty: it does not.
func (r *rivals) returned(address string, now time.Time) string {
	if r.over(now).IsZero() {
		return ""
	}
	return fmt.Sprintf("%s calls %s again and again while it is connected already: its connections break, it is started again and again, or two of it run there; of two have one alone call here", r.names[0], address)
}

// caller says who calls: by which of the peers' names, if it had to show one, and from where.
func (s *Source) caller(stream grpc.ServerStream) string {
	p, ok := peer.FromContext(stream.Context())
	if !ok {
		return "unknown"
	}
	host := hostOf(p.Addr)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return host
	}
	for _, name := range names(info.State) {
		if slices.Contains(s.cfg.Peers, name) {
			return name + " at " + host
		}
	}
	return host
}
