package consul

import (
	"context"
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
		"sessions for all":  {200, `{"ID":"x"}`, "cannot unmarshal"},
		"nobody is allowed": {403, "Permission denied", "node \"ashore-shop\", session \"ashore-shop\" and key \"ashore-export/shop\" with write"},
		"no leader":         {500, "No cluster leader", "answers 500 (No cluster leader)"},
		"too many":          {429, "Your IP is issuing too many concurrent connections", "limits.http_max_conns_per_client"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				w.Header().Set("X-Consul-Index", "7")
				w.WriteHeader(answer.status)
				fmt.Fprint(w, answer.body)
			}))
			t.Cleanup(s.Close)
			e, err := NewExporter(ExporterConfig{Name: "fake", Options: Options{Address: s.URL, Export: ExportOptions{Owner: "shop"}}, Log: testlog.New(t)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { defer close(done); _ = e.Run(ctx) }()
			in := meshService("web.example", "shop", nil, "10.0.0.1")
			e.Publish(Services{}.With(in.Service.Key, in.Service), Endpoints{}.With(in.Service.Key, in.Endpoints))
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				if p := e.Status().Problems; len(p) == 1 && strings.Contains(p[0].String(), answer.want) && p[0].Source == "consul:fake" {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("waited in vain for %q: %v", answer.want, e.Status().Problems)
				}
			}
			if n := asked.Load(); n > 40 {
				t.Errorf("it was asked %d times", n)
			}
			cancel()
			<-done
		})
	}
	for _, cfg := range []ExporterConfig{{}, {Name: "x", Log: testlog.New(t)}, {Name: "x", Log: testlog.New(t), Options: Options{Address: "ftp://x", Export: ExportOptions{Owner: "shop"}}}} {
		if _, err := NewExporter(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}
