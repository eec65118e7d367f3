package consul

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// Whatever answers in Consul's place: it is told, it is not asked without end, and the end is in sight.
func TestExportNonsense(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"null":              {200, "null", "no session"},
		"nothing":           {200, "", "cannot be asked"},
		"an empty list":     {200, "[]", "cannot be asked"},
		"a page":            {200, "<html>sign in</html>", "invalid character"},
		"sessions for all":  {200, `{"ID":"x"}`, "is gone from Consul"},
		"nobody is allowed": {403, "Permission denied", "node \"ashore-shop-here\" and session \"ashore-shop-here\" with write"},
		"no leader":         {500, "No cluster leader", "answers 500 (No cluster leader)"},
		"too many":          {429, "Your IP is issuing too many concurrent connections", "limits.http_max_conns_per_client"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			registering(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				w.Header().Set("X-Consul-Index", "7")
				w.WriteHeader(answer.status)
				fmt.Fprint(w, answer.body)
			}), 1, func(st ExportStatus) bool {
				return len(st.Problems) == 1 && strings.Contains(st.Problems[0].String(), answer.want) && st.Problems[0].Source == "consul:fake"
			})
			if n := asked.Load(); n > 40 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
	for _, cfg := range []ExporterConfig{{}, {Name: "x", Log: testlog.New(t)}, {Name: "x", Log: testlog.New(t), Options: Options{Address: "ftp://x", Export: ExportOptions{Owner: "shop"}}}} {
		if _, err := NewExporter(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// exportAnswers are those of a Consul that lets one replica register, by the beginning of the path; nonsense stands among them.
func exportAnswers(txn func(ops int) (status int, body string)) http.Handler {
	m := http.NewServeMux()
	say := func(pattern, body string) {
		m.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Consul-Index", "7")
			fmt.Fprint(w, body)
		})
	}
	say("/v1/catalog/node/", `{"Node":{"Node":"ashore-shop-here","Meta":{"ashore-exported-by":"shop"}}}`)
	say("/v1/session/create", `{"ID":"s"}`)
	say("/v1/session/renew/", `[{"ID":"s"}]`)
	say("/v1/catalog/node-services/", `{"Node":{"Node":"ashore-shop-here"},"Services":[null]}`)
	say("/v1/health/node/", `[null]`)
	say("/v1/catalog/register", `true`)
	say("/v1/catalog/services", `{}`)
	say("/v1/health/state/critical", `[null]`)
	m.HandleFunc("/v1/txn", func(w http.ResponseWriter, r *http.Request) {
		var ops []any
		if err := json.NewDecoder(r.Body).Decode(&ops); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		status, body := txn(len(ops))
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
	return m
}

// registering runs an exporter of services a, b, … with an address each against what answers, until ok of its status.
func registering(t *testing.T, consul http.Handler, services int, ok func(ExportStatus) bool) {
	t.Helper()
	s := httptest.NewServer(consul)
	t.Cleanup(s.Close)
	e, err := NewExporter(ExporterConfig{Name: "fake", Replica: "here", Options: Options{Address: s.URL, Export: ExportOptions{Owner: "shop"}}, Log: testlog.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = e.Run(ctx) }()
	defer func() { cancel(); <-done }()
	var all Services
	var endpoints Endpoints
	for i := range services {
		in := meshService(string(rune('a'+i))+".example", "shop", nil, "10.0.0.1")
		all, endpoints = all.With(in.Service.Key, in.Service), endpoints.With(in.Service.Key, in.Endpoints)
	}
	e.Publish(all, endpoints)
	for end := time.Now().Add(30 * time.Second); !ok(e.Status()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %+v", e.Status())
		}
	}
}

// Lists with nothing in them end nothing, and are told.
func TestExportNulls(t *testing.T) {
	t.Parallel()
	null := func(int) (int, string) { return http.StatusConflict, `{"Results":[{}],"Errors":[null]}` }
	registering(t, exportAnswers(null), 1, func(s ExportStatus) bool {
		return len(s.Problems) == 1 && strings.Contains(s.Problems[0].Text, "without saying why")
	})
}
