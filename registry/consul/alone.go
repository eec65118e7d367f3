package consul

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"path"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"
)

// Whoever may register one service may give it any name, and a service that Consul never tells of must not keep all others from
// being served. One that cannot be asked for by its name is judged by that alone. Of one for which Consul answers nothing but
// errors, the first full batch says nothing but that.

// alonePatience is how long Consul has answered nothing but errors for a service, while it tells of others, when the first full
// batch waits for it no longer. An election of Consul's servers takes less.
const alonePatience = 30 * time.Second

// longestAsked is how long a name may be to be asked for, in bytes; no label of DNS is nearly as long, and an address with it is
// still one that all programs take.
const longestAsked = 1024

// askable says whether a service can be asked for by its name: a path with "." or ".." in it, or with two slashes in a row, is the
// path of something else. Source: net/http (ServeMux, cleanPath), by which Consul's agent finds what it is asked for.
func askable(name string) bool {
	asked := "/v1/health/service/" + name
	clean := path.Clean(asked)
	return len(name) <= longestAsked && (clean == asked || clean+"/" == asked)
}

// judge says of a service that cannot be asked for what follows from its name.
func (k *keeper) judge(sc *scope, s *service, at time.Time) {
	c := converter{o: k.o, at: sc.at, name: s.name}
	c.misnamed()
	k.set(sc, s, c.out, at)
}

// answered says that an error is what Consul answers to a question: no trouble of the way to it, or of how much is asked.
func answered(err error) bool {
	var status api.StatusError
	if errors.As(err, &status) {
		return !busy(err)
	}
	var asked *url.Error
	var way net.Error
	return !errors.As(err, &asked) && !errors.As(err, &way) && !slices.ContainsFunc(
		[]error{context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, errLost, errHidden, errOwnUnread},
		func(e error) bool { return errors.Is(err, e) })
}

// excuse has the first full batch not wait for a service any longer that is in trouble alone: Consul answers errors for it, tells
// of at least as many others, and, asked once more since, which services there are. A Consul that is itself in trouble
// tells nobody that it has so little.
func (k *keeper) excuse(sc *scope, s *service) {
	t := s.trouble
	if k.told || s.known || !t.answered || time.Since(t.noticed) < alonePatience || !sc.listed || sc.mute() != nil || !sc.tellsMost() {
		return
	}
	if s.checked.IsZero() {
		s.checked = time.Now()
		sc.names.interrupt()
		return // the next failure of s finds whether there was an answer
	}
	if !sc.answered.Before(s.checked) {
		k.log.Warn("Consul answers nothing but errors for a service: the start does not wait for it", "service", s.group, "error", t.text)
		s.known = true
	}
}

// tellsMost says that Consul has told of at least as many services of a place as it has not.
func (sc *scope) tellsMost() bool {
	heard := 0
	for _, s := range sc.services {
		if s.heard && askable(s.name) {
			heard++
		}
	}
	return heard >= len(sc.ill)
}
