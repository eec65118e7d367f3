package examples

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// Testers get the canary, which sees a copy of everybody else's requests; a slow answer is cut off;
// failures are tried again elsewhere, and who keeps failing is ejected.
func TestCanary(t *testing.T) {
	t.Parallel()
	e := open(t, "canary")
	first := e.backend("v1", "127.0.0.21:8080")
	second := e.backend("v1", "127.0.0.22:8080")
	canary := e.backend("v2", "127.0.0.23:8080")
	p := e.proxy("client")
	client := p.Client(8000)
	request := func(path string, header ...string) harness.Request {
		r := harness.Request{Host: "reviews.internal", Path: path, Header: map[string]string{}}
		for i := 0; i+1 < len(header); i += 2 {
			r.Header[header[i]] = header[i+1]
		}
		return r
	}

	client.Want(t, "everybody gets v1", request("/all"), harness.From("v1"))
	client.Want(t, "testers get v2", request("/tester", "x-user", "tester"), harness.From("v2"))
	harness.Eventually(t, "the canary sees a copy", func() error {
		if !slices.ContainsFunc(canary.Last(), func(s harness.Seen) bool { return s.Path == "/all" }) {
			return fmt.Errorf("it saw %d requests, and /all is not among them", len(canary.Last()))
		}
		return nil
	})
	for _, b := range []*harness.Backend{first, second} {
		if slices.ContainsFunc(b.Last(), func(s harness.Seen) bool { return s.Path == "/tester" }) {
			t.Error("v1 saw the tester's request")
		}
	}
	client.Want(t, "a slow answer is cut off", request("/slow", "x-delay", "5s"),
		harness.Status(http.StatusGatewayTimeout))

	first.Fail.Store(true)
	ejected := func() bool {
		return p.Stat("cluster.outbound|8000|v1|reviews.internal;.outlier_detection.ejections_active") == 1
	}
	harness.Eventually(t, "the failing workload is ejected, and no request fails", func() error {
		for range 20 {
			a, err := client.Do(request("/"))
			if err != nil {
				t.Fatalf("a request got no answer: %v", err)
			}
			if err := harness.From("v1")(a); err != nil {
				t.Fatalf("a request was not tried again: %v", err)
			}
		}
		if !ejected() {
			return fmt.Errorf("not ejected after %d requests", first.Requests())
		}
		return nil
	})
}
