package webhook

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// An API server that knows the root certificate is answered; one that does not will not ask.
func TestReview(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client("")
	good, _, err := w.review(c, "u-1", goodSpec)
	if err != nil || !good.Response.Allowed || len(good.Response.Warnings) != 0 {
		t.Errorf("good: %+v, %v", good, err)
	}
	bad, _, err := w.review(c, "u-2", badSpec)
	if s := bad.Response.Status; err != nil || bad.Response.Allowed || s.Code != 422 || s.Reason != "Invalid" ||
		!strings.HasPrefix(s.Message, "spec.http[0].timeout: ") {
		t.Errorf("bad: %+v, %v", bad, err)
	}
	if _, err := http.Post(w.url("/validate"), "application/json", strings.NewReader("{}")); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("who does not know the root certificate: %v", err)
	}
	for _, name := range []string{"localhost", "istiod.istio-system.svc"} {
		other := w.client("")
		other.Transport.(*http.Transport).TLSClientConfig.ServerName = name
		if _, _, err := w.review(other, "u-3", goodSpec); err != nil {
			t.Errorf("by the name %s: %v", name, err)
		}
	}
	harness.Eventually(t, "metrics", func() error {
		if err := w.metric("ashore_webhook_reviews_total", `allowed="true"`, " 3"); err != nil {
			return err
		}
		return w.metric("ashore_webhook_reviews_total", `allowed="false"`, " 1")
	})
}

// For a pipeline with curl, the exit code shows whether a file is valid, and the output why.
func TestPipeline(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal("curl is needed for what docs/webhook.md shows: install it")
	}
	w := newWorld(t)
	for name, tc := range map[string]struct {
		text, want string
		exit       int
	}{
		"good.yaml": {goodText, "good.yaml: objects without problems: 1\n", 0},
		"bad.yaml":  {badText, "error bad.yaml:4: VirtualService shop/web spec.http[0].timeout: ", 22},
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(curl, "--silent", "--fail-with-body", "--retry", "3", "--cacert", w.roots, "-H",
			"Accept: text/plain", "-H", "Ashore-File: "+name,
			"--data-binary", "@"+path, w.url("/v1/validate"))
		out, _ := cmd.Output() // how it ended is looked at
		if !strings.HasPrefix(string(out), tc.want) || cmd.ProcessState.ExitCode() != tc.exit {
			t.Errorf("%s: exit code %d, %q; want %d with %q", name, cmd.ProcessState.ExitCode(), out, tc.exit, tc.want)
		}
	}
}

// A body that is too large is refused, with or without a declared length, and ashored continues.
func TestOversized(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client("")
	big := badText + strings.Repeat("#", 2<<20)
	for name, body := range map[string]io.Reader{"told": strings.NewReader(big),
		"not told": struct{ io.Reader }{strings.NewReader(big)}} {
		for _, path := range []string{"/validate", "/v1/validate"} {
			a, err := w.post(c, path, "application/json", body)
			if err != nil || a.code != http.StatusRequestEntityTooLarge ||
				!strings.Contains(a.body, "send less at once") {
				t.Errorf("%s to %s: %d %s, %v", name, path, a.code, a.body, err)
			}
			body = struct{ io.Reader }{strings.NewReader(big)}
		}
	}
	if _, missing, wrong := w.judged(c, 1); missing != nil || wrong != nil {
		t.Error(missing, wrong)
	}
	harness.Eventually(t, "a metric of what was too large",
		func() error { return w.metric("ashore_webhook_requests_total", `path="/validate",status="413"`, " 2") })
}

// Hundreds at once, from many connections, are all answered, each as it should be.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all sync.WaitGroup
	for i := range 40 {
		c := w.client("")
		for j := range 5 {
			all.Go(func() {
				if _, missing, wrong := w.judged(c, 5*i+j); missing != nil || wrong != nil {
					t.Error(missing, wrong)
				}
			})
		}
	}
	all.Wait()
}
