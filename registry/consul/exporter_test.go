package consul

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// A wrong answer is a problem. The exporter backs off, and stops when its context ends.
func TestExportWrongAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"null":                {200, "null", "does not come from Consul"},
		"an empty body":       {200, "", "cannot be reached"},
		"an empty list":       {200, "[]", "cannot be reached"},
		"a page":              {200, "<html>sign in</html>", "invalid character"},
		"one for all queries": {200, `{"ID":"x"}`, "cannot unmarshal"},
		"refused":             {403, "Permission denied", `write for node "ashore-shop-here" and session "ashore-shop-here"`},
		"no leader":           {500, "No cluster leader", "answers 500 (No cluster leader)"},
		"too many":            {429, "too many concurrent connections", "limits.http_max_conns_per_client"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var queries atomic.Int64
			export(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				queries.Add(1)
				w.Header().Set("X-Consul-Index", "7")
				w.WriteHeader(answer.status)
				fmt.Fprint(w, answer.body)
			}), func(st ExportStatus) bool {
				return len(st.Problems) == 1 && strings.Contains(st.Problems[0].String(), answer.want) &&
					st.Problems[0].Source == "consul:fake"
			})
			if n := queries.Load(); n > 40 {
				t.Errorf("%d queries", n)
			}
		})
	}
}

// Lists of nulls are ignored.
func TestExportNulls(t *testing.T) {
	t.Parallel()
	export(t, answers(map[string]string{
		"/v1/catalog/node-services/": `{"Node":{"Meta":{"ashore-exported-by":"shop"}},"Services":[null]}`,
		"/v1/health/node/":           `[null]`,
		"/v1/health/state/critical":  `[null]`,
	}), func(s ExportStatus) bool { return len(s.Problems) == 0 && s.Entries == 1 })
}

// A service that Consul refuses is a problem. Entries that it accepts are counted.
func TestExportProblems(t *testing.T) {
	t.Parallel()
	refusing := http.NewServeMux()
	refusing.Handle("/", answers(nil))
	refusing.HandleFunc("/v1/txn", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"Errors":[{"OpIndex":0,"What":"Permission denied"}]}`)
	})
	export(t, refusing, func(s ExportStatus) bool {
		return len(s.Problems) == 1 && s.Problems[0].Object == "Consul service web" &&
			strings.Contains(s.Problems[0].Text, "give the token in tokenFile service:write for it") && s.Entries == 0
	})
	export(t, answers(nil), func(s ExportStatus) bool {
		return len(s.Problems) == 0 && s.Entries == 1 && s.Writes == 1
	})
}

// answers is a Consul that accepts everything, except for these answers, by path.
func answers(other map[string]string) http.Handler {
	all := map[string]string{
		"/v1/session/create":         `{"ID":"s"}`,
		"/v1/session/renew/":         `[{"ID":"s"}]`,
		"/v1/catalog/node-services/": `null`,
		"/v1/health/node/":           `[]`,
		"/v1/catalog/register":       `true`,
		"/v1/catalog/services":       `{}`,
		"/v1/health/state/critical":  `[]`,
		"/v1/txn":                    `{"Results":[]}`,
	}
	maps.Copy(all, other)
	m := http.NewServeMux()
	for path, body := range all {
		m.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Consul-Index", "7")
			fmt.Fprint(w, body)
		})
	}
	return m
}

// export runs an exporter of one service until its status is as ok wants it.
func export(t *testing.T, consul http.Handler, ok func(ExportStatus) bool) {
	t.Helper()
	s := httptest.NewServer(consul)
	t.Cleanup(s.Close)
	e, err := NewExporter(ExporterConfig{
		Name: "consul:fake", Replica: "here", Options: Options{Address: s.URL,
			Export: ExportOptions{Owner: "shop"}}, Log: testlog.New(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = e.Run(ctx) }()
	defer func() { cancel(); <-done }()
	in := meshService("web.example", "shop", nil, "10.0.0.1")
	e.Publish(Services{}.With(in.Service.Key, in.Service), Endpoints{}.With(in.Service.Key, in.Endpoints))
	for end := time.Now().Add(30 * time.Second); !ok(e.Status()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %+v", e.Status())
		}
	}
}
