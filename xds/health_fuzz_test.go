package xds

import (
	"context"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// ear hears reports.
type ear struct {
	registry.Runtime
	heard []registry.Report
}

func (e *ear) Report(_ context.Context, _ registry.RegistrationKey, _ string, h registry.Report) error {
	e.heard = append(e.heard, h)
	return nil
}

func (e *ear) Registrations() registry.Registrations { return registry.Registrations{} }

// Any bytes of a report are heard as one, bounded and readable, or refused; and they are well only
// without a detail.
func FuzzHealthInformation(f *testing.F) {
	detail := func(message string) []byte {
		b := protowire.AppendTag(nil, 2, protowire.BytesType)
		b = protowire.AppendString(b, message)
		return protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), b)
	}
	f.Add([]byte{}, false)
	f.Add(detail("503"), true)
	f.Add(detail("\xff\x00"), false)
	f.Add(detail(string(make([]byte, 5000))), true)
	f.Fuzz(func(t *testing.T, rest []byte, registered bool) {
		raw := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), healthType)
		r, err := ads.ReadRequest(append(raw, rest...), false)
		if err != nil || r.TypeURL != healthType {
			return
		}
		e := &ear{}
		st := &stream{server: &Server{cfg: Config{Runtime: e}, log: testlog.New(t)}}
		if registered {
			st.registered = &registry.RegistrationKey{}
		}
		if err := st.report(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		switch {
		case !registered:
			if len(e.heard) > 0 {
				t.Error("a report of nobody was heard")
			}
		case len(e.heard) != 1:
			t.Errorf("%d reports", len(e.heard))
		default:
			h := e.heard[0]
			if well := h.State == registry.ReportedHealthy; well != (r.Rejected == nil) ||
				len(h.Message) > maxHealthMessage+len("…") || !utf8.ValidString(h.Message) {
				t.Errorf("heard %+v of %+v", h, r.Rejected)
			}
		}
	})
}
