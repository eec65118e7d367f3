package mcp

import (
	"fmt"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/mcp/legacypb"
)

// triggerCollection is what a source that calls a sink says first, since gRPC wants the caller to speak: it expects a
// refusal, and throws it away. Source: Istio 1.8, pkg/mcp/source/client_source.go.
const triggerCollection = "$triggerCollection"

// legacySession speaks the older protocol. Collections are asked for all at once; each has one answer under way at most,
// and the answer to it asks for the next. It claims nothing of earlier streams, see xdsSession.
type legacySession struct {
	questions   *questions
	node        string
	incremental bool
	most        int             // resources of one answer
	spoken      map[string]bool // collections that were answered
}

// newLegacySession makes one whose answers may name most resources each.
func newLegacySession(lists []list, node string, incremental bool, most int) *legacySession {
	kinds := make([][]list, len(lists))
	for i, l := range lists {
		kinds[i] = []list{l}
	}
	return &legacySession{questions: newQuestions(kinds), node: node, incremental: incremental, most: most, spoken: map[string]bool{}}
}

func (s *legacySession) open() (out []any) {
	for _, l := range s.questions.first(func(string) bool { return false }) {
		out = append(out, s.request(l.name, "", nil))
	}
	return out
}

func (s *legacySession) message() any { return &frame{} }

func (s *legacySession) request(collection, nonce string, refused *statuspb.Status) *legacypb.RequestResources {
	return &legacypb.RequestResources{SinkNode: &legacypb.SinkNode{Id: s.node}, Collection: collection, ResponseNonce: nonce, ErrorDetail: refused, Incremental: s.incremental}
}

func (s *legacySession) read(message any) (*list, *word, []any, error) {
	r, err := readBundle(message.(*frame).raw, s.most)
	if err != nil {
		return nil, nil, nil, err
	}
	l := s.questions.find(r.collection)
	if l == nil {
		words := fmt.Sprintf("unsupported collection %q", clip(r.collection))
		refusal := []any{s.request(r.collection, r.nonce, &statuspb.Status{Code: codeUnimplemented, Message: words})}
		if r.collection == triggerCollection {
			return nil, nil, refusal, nil
		}
		return nil, &word{list: r.collection}, refusal, nil
	}
	// A source that numbers all answers of a stream in one row calls the first one of the second collection a
	// difference already, although it is all that there is.
	first := !s.spoken[l.name]
	w := &word{list: r.collection, nonce: r.nonce, version: r.version, whole: first || !r.incremental, first: first && r.incremental}
	if r.incremental {
		w.removed = r.removed
	}
	for _, raw := range r.items {
		w.items = append(w.items, item{typeURL: resourceType, raw: raw})
	}
	return l, w, nil, nil
}

func (s *legacySession) answer(l *list, w *word, refused string) []any {
	if !s.spoken[l.name] {
		s.spoken[l.name] = true
		s.questions.answered(l, len(w.items) > 0)
	}
	var detail *statuspb.Status
	if refused != "" {
		detail = &statuspb.Status{Code: codeInvalid, Message: refused}
	}
	return []any{s.request(l.name, w.nonce, detail)}
}

func (s *legacySession) lacking() []config.Kind { return s.questions.lacking() }
