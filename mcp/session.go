package mcp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/excerpt"
)

// session is the protocol on one stream, from the end that wants resources: what it asks, what an answer says, how it
// is answered. No I/O; not safe for concurrent use.
type session interface {
	// open are the requests that begin the stream.
	open() []any
	// message is an empty one to receive into.
	message() any
	// read reads a message. The list is nil when it holds no content, and the word then names what nobody asked about, if
	// that is why; replies are to be sent at once. Errors: the message is nonsense, nothing that follows is to be believed.
	read(message any) (l *list, w *word, replies []any, err error)
	// answer accepts a word, or refuses it with words, and asks for what it makes necessary.
	answer(l *list, w *word, refused string) []any
	// lacking are the kinds of which something is not said yet.
	lacking() []config.Kind
}

// codes of google.rpc.Status in refusals.
const (
	codeInvalid       = 3
	codeUnimplemented = 12
)

// asked is how far a kind is on a stream: its names are asked for one by one, the next when one holds nothing.
type asked struct {
	names    []list
	next     int  // the first that is not asked for
	answered int  // how many were answered
	held     bool // one of them had something
}

// questions are all kinds of a stream.
type questions struct {
	kinds []*asked
	lists map[string]question // by name
}

// question is one name that was asked for.
type question struct {
	list  list
	asked *asked
}

// newQuestions are about kinds, each by its names, the one that counts first.
func newQuestions(kinds [][]list) *questions {
	q := &questions{lists: map[string]question{}}
	for _, names := range kinds {
		a := &asked{names: names}
		q.kinds = append(q.kinds, a)
		for _, l := range names {
			q.lists[l.name] = question{l, a}
		}
	}
	return q
}

// first are the names to ask for at the beginning: of each kind the one that counts first, and up to the last one that held
// something before, for that may be gone.
func (q *questions) first(held func(name string) bool) (out []list) {
	for _, a := range q.kinds {
		a.next = 1
		for i, l := range a.names {
			if held(l.name) {
				a.next = i + 1
			}
		}
		out = append(out, a.names[:a.next]...)
	}
	return out
}

// find finds a list that was asked for; nil: it was not.
func (q *questions) find(name string) *list {
	at, ok := q.lists[name]
	if !ok || !slices.ContainsFunc(at.asked.names[:at.asked.next], func(l list) bool { return l.name == name }) {
		return nil
	}
	return &at.list
}

// answered notes the first answer about a list, and returns the name to ask for next, nil for none.
func (q *questions) answered(l *list, something bool) *list {
	a := q.lists[l.name].asked
	a.answered++
	a.held = a.held || something
	if a.held || a.answered < a.next || a.next == len(a.names) {
		return nil
	}
	a.next++
	return &a.names[a.next-1]
}

// lacking are the kinds of which something is not said yet.
func (q *questions) lacking() (out []config.Kind) {
	for _, a := range q.kinds {
		if a.answered < a.next || !a.held && a.answered < len(a.names) {
			out = append(out, a.names[0].kind.Kind)
		}
	}
	return out
}

// refusal is what a server is told of a verdict; empty: all was taken.
func (v *verdict) refusal() string {
	if v.count == 0 {
		return ""
	}
	const most = 4 << 10
	var b strings.Builder
	fmt.Fprintf(&b, "refused %d:", v.count)
	for _, p := range v.refused {
		if b.Len() > most {
			break
		}
		b.WriteString(" " + p.String() + ";")
	}
	return excerpt.Of(strings.TrimSuffix(b.String(), ";"), most)
}
