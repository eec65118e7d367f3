package agent

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// envoyCerts is Envoy's answer to /certs with these serial numbers for names.
func envoyCerts(certs ...[2]string) []byte {
	type name map[string]string
	var list []any
	for _, c := range certs {
		list = append(list, map[string]any{"ca_cert": []any{}, "cert_chain": []any{map[string]any{
			"path": "<inline>", "serial_number": c[1], "subject_alt_names": []name{{"uri": c[0]}}}}})
	}
	b, err := json.Marshal(map[string]any{"certificates": list})
	if err != nil {
		panic(err)
	}
	return b
}

// An Envoy that presents an old certificate is given the new one again, and is an alarm when that does not help; certificates
// of others that it uses are none of ours.
func TestPresented(t *testing.T) {
	t.Parallel()
	k := kept(t, newMesh(t, "cluster.local"), time.Hour)
	good, id := k.Identity().Serial(), k.Identity().ID.String()
	var answer []byte
	var failure error
	p := &presentation{keeper: k, certs: func(context.Context) ([]byte, error) { return answer, failure }, log: testlog.New(t)}
	changed, forget := k.Changed()
	defer forget()
	for _, tc := range []struct {
		name         string
		answer       []byte
		failure      error
		done, pushed bool
		want         Presented
	}{
		{"Envoy is away", nil, errors.New("away"), true, false, Presented{}},
		{"nothing yet", envoyCerts(), nil, true, false, Presented{}},
		{"another's", envoyCerts([2]string{"spiffe://cluster.local/ns/shop/sa/other", "0a"}), nil, true, false, Presented{}},
		{"the latest", envoyCerts([2]string{id, good}, [2]string{id, good}), nil, true, false, Presented{Serials: []string{good}}},
		{"an old one", envoyCerts([2]string{id, "01"}), nil, false, true, Presented{Serials: []string{"01"}, Stale: true}},
		{"still", envoyCerts([2]string{id, "01"}, [2]string{id, good}), nil, false, true, Presented{Serials: []string{"01", good}, Stale: true}},
		{"a third time", envoyCerts([2]string{id, "01"}), nil, false, true, Presented{Serials: []string{"01"}, Stale: true, Alarm: true}},
		{"for good", envoyCerts([2]string{id, "01"}), nil, true, true, Presented{Serials: []string{"01"}, Stale: true, Alarm: true}},
		{"healed", envoyCerts([2]string{id, good}), nil, true, false, Presented{Serials: []string{good}}},
		{"garbage changes nothing", []byte("{"), nil, true, false, Presented{Serials: []string{good}}},
	} {
		answer, failure = tc.answer, tc.failure
		if done := p.compare(t.Context()); done != tc.done {
			t.Errorf("%s: the next look is far: %v, want %v", tc.name, done, tc.done)
		}
		got := p.State()
		got.At = time.Time{}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, d)
		}
		select {
		case <-changed:
			if !tc.pushed {
				t.Errorf("%s: Envoy is given it again", tc.name)
			}
		default:
			if tc.pushed {
				t.Errorf("%s: Envoy is not given it again", tc.name)
			}
		}
	}
}

// An answer that was good is good again, until another certificate is issued: then the same answer is an old one.
func TestPresentedAgain(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "cluster.local")
	k := kept(t, m, time.Hour)
	first := k.Identity()
	answer := envoyCerts([2]string{first.ID.String(), first.Serial()})
	p := &presentation{keeper: k, certs: func(context.Context) ([]byte, error) { return answer, nil }, log: testlog.New(t)}
	for n := range 3 {
		before := p.State().At
		if done, got := p.compare(t.Context()), p.State(); !done || got.Stale || !got.At.After(before) || len(got.Serials) != 1 {
			t.Errorf("look %d: %v, %+v", n, done, got)
		}
	}
	k.replace(m.identity(t, web(), time.Hour), k.Joined())
	if done, got := p.compare(t.Context()), p.State(); done || !got.Stale {
		t.Errorf("after a renewal: %v, %+v, want a stale certificate", done, got)
	}
	k.replace(first, k.Joined())
	if done, got := p.compare(t.Context()), p.State(); !done || got.Stale {
		t.Errorf("the first one again: %v, %+v", done, got)
	}
}
