package mcp

import (
	"fmt"
	"net/netip"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// frame is one message as bytes.
type frame struct{ raw []byte }

// frames passes frames through and leaves all other messages to the protobuf codec.
type frames struct{ messages encoding.CodecV2 }

var _ encoding.CodecV2 = frames{}

// Name is what travels as content type.
func (frames) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (c frames) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(f.raw)}, nil
	}
	return c.messages.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c frames) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		f.raw = data.Materialize()
		return nil
	}
	return c.messages.Unmarshal(data, v)
}

// xdsSession speaks MCP over xDS: discovery requests whose types are kinds of configuration. It claims nothing of earlier
// streams: not every server reads what a client claims to have, and of one that does not, what it lost meanwhile would
// stay for ever. So the first answer of each type is all that there is.
type xdsSession struct {
	questions *questions
	states    bool // state of the world
	node      []byte
	limits    ads.Limits
	held      func(name string) bool

	nodeSent bool
	spoken   map[string]bool   // types that were answered
	versions map[string]string // of what was accepted last; state of the world
}

// nodeOf encodes the envoy.config.core.v3.Node of a client that wants configuration: a name that Istio can read, and
// the metadata by which it knows what is wanted.
// Source: Istio, pkg/adsc, and pilot/pkg/xds.
func nodeOf(name, namespace, revision string) ([]byte, error) {
	metadata := map[string]any{"GENERATOR": "api", "NAMESPACE": namespace, "ISTIO_VERSION": "65536.65536.65536"}
	if revision != "" {
		metadata["ISTIO_REVISION"] = revision
	}
	fields, err := structpb.NewStruct(metadata)
	if err != nil {
		return nil, err
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(fields)
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("sidecar~%s~%s.%s~%s.svc.cluster.local", netip.AddrFrom4([4]byte{127, 0, 0, 1}), name, namespace, namespace)
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), id)
	return protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), raw), nil
}

// newXDSSession makes one; held says which names held something on earlier streams.
func newXDSSession(kinds []config.KindInfo, states bool, node []byte, limits ads.Limits, held func(name string) bool) *xdsSession {
	var names [][]list
	for _, k := range kinds {
		names = append(names, typeNames(k))
	}
	return &xdsSession{questions: newQuestions(names), states: states, node: node, limits: limits, held: held, spoken: map[string]bool{}, versions: map[string]string{}}
}

func (s *xdsSession) open() (out []any) {
	for _, l := range s.questions.first(s.held) {
		out = append(out, s.ask(l.name, "", "", nil))
	}
	return out
}

func (s *xdsSession) message() any { return &frame{} }

// ask is a request: without a nonce the first one for a type, which asks for everything, otherwise an answer.
func (s *xdsSession) ask(typeURL, nonce, version string, rejected *ads.Rejection) *frame {
	var node []byte
	if !s.nodeSent {
		node, s.nodeSent = s.node, true
	}
	if s.states {
		return &frame{(&ads.StateAsk{TypeURL: typeURL, Node: node, Version: version, Nonce: nonce, Rejected: rejected}).Encode()}
	}
	return &frame{(&ads.Ask{TypeURL: typeURL, Node: node, Nonce: nonce, Rejected: rejected}).Encode()}
}

func (s *xdsSession) read(message any) (*list, *word, []any, error) {
	raw := message.(*frame).raw
	w := &word{whole: true}
	var items []ads.Item
	if s.states {
		r, err := ads.ReadStateReply(raw, s.limits)
		if err != nil {
			return nil, nil, nil, err
		}
		w.list, w.nonce, w.version, items = r.TypeURL, r.Nonce, r.Version, r.Items
	} else {
		r, err := ads.ReadReply(raw, s.limits)
		if err != nil {
			return nil, nil, nil, err
		}
		first := !s.spoken[r.TypeURL]
		w.list, w.nonce, w.removed, w.whole, w.first, items = r.TypeURL, r.Nonce, r.Removed, first, first, r.Items
	}
	l := s.questions.find(w.list)
	if l == nil {
		return nil, &word{list: w.list}, nil, nil // to refuse it would be to ask for it
	}
	for _, it := range items {
		w.items = append(w.items, item{name: it.Name, typeURL: it.TypeURL, raw: it.Body})
	}
	return l, w, nil, nil
}

func (s *xdsSession) answer(l *list, w *word, refused string) (out []any) {
	var rejected *ads.Rejection
	if refused != "" {
		rejected = &ads.Rejection{Code: codeInvalid, Message: refused}
	} else {
		s.versions[l.name] = w.version
	}
	if w.nonce != "" {
		out = append(out, s.ask(l.name, w.nonce, s.versions[l.name], rejected))
	}
	if s.spoken[l.name] {
		return out
	}
	s.spoken[l.name] = true
	if next := s.questions.answered(l, len(w.items) > 0); next != nil {
		out = append(out, s.ask(next.name, "", "", nil))
	}
	return out
}

func (s *xdsSession) lacking() []config.Kind { return s.questions.lacking() }
