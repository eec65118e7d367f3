package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
)

// Whatever is sent as a review: no panic; an answer repeats the uid; what is let in has passed the
// gate.
func FuzzReview(f *testing.F) {
	for _, s := range samples(f)[:100] {
		if object, ok := asJSON(s); ok {
			f.Add([]byte(reviewOf(requestOf("CREATE", string(s.kind), string(object), ""))))
		}
	}
	for _, operation := range []string{"UPDATE", "DELETE", "CONNECT", ""} {
		f.Add([]byte(reviewOf(requestOf(operation, "VirtualService",
			objectOf("v1", "VirtualService", `, "deletionTimestamp": "x"`, badSpec), `, "subResource": "status"`))))
	}
	f.Add([]byte(reviewOf(announced(requestOf("CREATE", "Deployment", objectOf("v1", "VirtualService", "", goodSpec),
		""), "apps"))))
	f.Add([]byte(reviewOf(announced(requestOf("CREATE", "Deployment", `{"apiVersion": "apps/v1", "kind": "Deployment"}`,
		""), "apps"))))
	f.Add([]byte(`{"Kind": "AdmissionReview", "apiversion": "admission.k8s.io/v1", "request": {"uid": "\ud800", "operation": "CREATE"}}`))
	s := newServer(f, Config{Rate: 1_000_000, Log: hclog.NewNullLogger()})
	f.Fuzz(func(t *testing.T, body []byte) {
		w := post(s, reviewPath, jsonType, string(body))
		if w.Code != http.StatusOK {
			if w.Code != http.StatusBadRequest && w.Code != http.StatusRequestEntityTooLarge ||
				strings.TrimSpace(w.Body.String()) == "" {
				t.Errorf("status %d, %q", w.Code, w.Body)
			}
			return
		}
		var in review
		if err := json.Unmarshal(body, &in); err != nil {
			t.Fatalf("it was answered, and %v", err)
		}
		r, q := decodeResponse(t, w.Body.Bytes()), in.Request
		if r.UID != q.UID {
			t.Errorf("the answer to %q is to %q", q.UID, r.UID)
		}
		if r.Allowed != (r.Status == nil) || !r.Allowed && r.Status.Message == "" {
			t.Errorf("allowed %v with %+v", r.Allowed, r.Status)
		}
		if !r.Allowed || q.Operation != opCreate || q.SubResource != "" {
			return
		}
		if !ours(q.Kind.Group) {
			return
		}
		gate := config.Parse("a.json", q.Object)
		if slices.ContainsFunc(gate.Problems, config.Problem.IsError) {
			t.Errorf("it is let in, and the gate says %v", gate.Problems)
		}
	})
}

// Whatever is sent as text, by whatever name: no panic; the answer is that of the gate, as JSON or
// as lines of text.
func FuzzText(f *testing.F) {
	for i, s := range samples(f)[:150] {
		f.Add([]byte(s.text), s.name, i%2 == 0)
	}
	f.Add([]byte("a: b"), "a\nb", false)
	f.Add([]byte(`{"a": 1}`), "a.json", true)
	s := newServer(f, Config{Rate: 1_000_000, Log: hclog.NewNullLogger()})
	f.Fuzz(func(t *testing.T, body []byte, name string, asText bool) {
		accept := jsonType
		if asText {
			accept = "text/plain"
		}
		w := post(s, validatePath+"?file="+url.QueryEscape(name), "", string(body), "Accept", accept)
		switch w.Code {
		case http.StatusOK, http.StatusUnprocessableEntity:
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			return
		default:
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		if asText {
			checkLines(t, w.Code, w.Body.String())
			return
		}
		var list []config.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(list, config.Problem.IsError) != (w.Code == http.StatusUnprocessableEntity) {
			t.Errorf("status %d for %v", w.Code, list)
		}
		if wrong := slices.ContainsFunc(config.Parse(name, body).Problems, config.Problem.IsError); wrong &&
			w.Code == http.StatusOK {
			t.Error("the gate refuses it")
		}
	})
}

// checkLines wants each line to be a problem with its severity, or that there is none.
func checkLines(t *testing.T, code int, text string) {
	t.Helper()
	errors := 0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "error ") {
			errors++
		}
	}
	if text == "" || (errors > 0) != (code == http.StatusUnprocessableEntity) &&
		code == http.StatusUnprocessableEntity {
		t.Errorf("status %d with %q", code, text)
	}
}

// An object of ordinary size, as a review and as text, with what the same bytes cost the JSON
// decoder alone.
func BenchmarkValidate(b *testing.B) {
	var routes []string
	for i := range 10 {
		routes = append(routes, fmt.Sprintf(`{"match": [{"uri": {"prefix": "/v%d"}}], "timeout": "5s", "route": [{"destination": {"host": "web.example.com", "subset": "v%d"}, "weight": 90}, {"destination": {"host": "web.example.com"}, "weight": 10}]}`, i, i))
	}
	object := objectOf("v1", "VirtualService", "", `{"hosts": ["web.example.com"], "http": [`+strings.Join(routes,
		", ")+`]}`)
	body := reviewOf(requestOf("CREATE", "VirtualService", object, ""))
	s := newServer(b, Config{Rate: 1_000_000, Log: hclog.NewNullLogger()})
	if w := post(s, reviewPath, jsonType, body); !decodeResponse(b, w.Body.Bytes()).Allowed {
		b.Fatal(w.Body)
	}
	b.Run("review", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			post(s, reviewPath, jsonType, body)
		}
	})
	b.Run("text", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			post(s, validatePath+"?file=a.json", jsonType, object)
		}
	})
	b.Run("floor", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v any
			if err := json.Unmarshal([]byte(body), &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}
