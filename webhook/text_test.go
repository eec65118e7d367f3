package webhook

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

const (
	goodText = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: db, namespace: shop}
spec:
  hosts: [db.example.com]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.1}]
`
	badText    = goodText + "---\n" + "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: x}\nspec:\n  hostz: []\n"
	warnedText = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: db}
spec:
  host: db.example.com
  trafficPolicy:
    outlierDetection: {consecutiveErrors: 5}
`
)

func TestText(t *testing.T) {
	t.Parallel()
	const yaml = "application/yaml"
	for name, tc := range map[string]struct {
		target, kind, body string
		header             []string
		code               int
		want               []string
	}{
		"good":             {body: goodText, code: 200, want: []string{"[]\n"}},
		"good, as text":    {body: goodText + "---\n" + warnedText[:0], header: []string{"Accept", "text/plain"}, code: 200, want: []string{"request: objects without problems: 1\n"}},
		"bad":              {target: "?file=a/b.yaml", body: badText, code: 422, want: []string{`"file": "a/b.yaml"`, `"line": 14`, `"field": "spec.hostz"`, `"severity": "error"`}},
		"bad, by a header": {body: badText, header: []string{"Ashore-File", "b.yaml"}, code: 422, want: []string{`"file": "b.yaml"`}},
		"both alike":       {target: "?file=b.yaml", body: badText, header: []string{"Ashore-File", "b.yaml"}, code: 422, want: []string{`"file": "b.yaml"`}},
		"bad, as text": {target: "?file=b.yaml", body: badText, header: []string{"Accept", "text/plain"}, code: 422,
			want: []string{"error b.yaml:14: ServiceEntry default/x spec.hostz: unknown field"}},
		"a warning":         {target: "?file=b.yaml", body: warnedText, header: []string{"Accept", "text/plain"}, code: 200, want: []string{"warning b.yaml:7: DestinationRule default/db spec."}},
		"JSON wanted first": {body: badText, header: []string{"Accept", "application/json, text/plain"}, code: 422, want: []string{`"line": 14`}},
		"nothing that is":   {body: badText, header: []string{"Accept", "image/png, ;;"}, code: 422, want: []string{`"line": 14`}},
		// As with files, one that is empty may have been meant to be something.
		"empty": {body: "", code: 422, want: []string{"the file is empty"}},
		// The name tells how a text is read; without one its type does.
		"curl's type":        {kind: "application/x-www-form-urlencoded", body: goodText, code: 200, want: []string{"[]"}},
		"no type":            {kind: "-", body: goodText, code: 200, want: []string{"[]"}},
		"control characters": {target: "?file=a%1b[2Jb", body: badText, code: 400, want: []string{"control characters"}},
		"a long name":        {target: "?file=" + strings.Repeat("a", maxName+1), body: badText, code: 400, want: []string{"1024 bytes"}},
		"not UTF-8":          {target: "?file=a.yaml", body: "a: \xff", code: 422, want: []string{"not UTF-8"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.kind == "" {
				tc.kind = yaml
			}
			w := post(newServer(t, Config{}), validatePath+tc.target, strings.Trim(tc.kind, "-"), tc.body, tc.header...)
			if w.Code != tc.code {
				t.Errorf("status %d, want %d: %s", w.Code, tc.code, w.Body)
			}
			for _, want := range tc.want {
				if !strings.Contains(w.Body.String(), want) {
					t.Errorf("no %q in %s", want, w.Body)
				}
			}
		})
	}
}

// What a text is called never makes the answer another type.
func TestTextIsText(t *testing.T) {
	t.Parallel()
	w := post(newServer(t, Config{}), validatePath+"?file=%3Cscript%3E", "", "a", "Accept", "text/plain")
	if h := w.Header(); h.Get("Content-Type") != "text/plain; charset=utf-8" ||
		h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("headers are %v", h)
	}
}

// More problems than are told are counted, and the answer stays small.
func TestTextManyProblems(t *testing.T) {
	t.Parallel()
	w := post(newServer(t, Config{}), validatePath, "", strings.Repeat("---\nkind: Foo\n", 20_000))
	var list []config.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != http.StatusUnprocessableEntity ||
		len(list) != config.MaxProblems+1 {
		t.Errorf("status %d, %d problems, %v", w.Code, len(list), err)
	}
}
