package policy

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"golang.org/x/tools/txtar"

	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds/gen"
)

// What policies that are only tried would do is counted, what AUDIT matches is marked for the
// access log, and neither changes an answer.
func TestTriedPoliciesAreCounted(t *testing.T) {
	t.Parallel()
	const policies = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: shop, annotations: {istio.io/dry-run: "true"}}
spec: {action: DENY, rules: [{to: [{operation: {paths: [/denied]}}]}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: allow, namespace: shop, annotations: {istio.io/dry-run: "true"}}
spec: {rules: [{to: [{operation: {notPaths: [/unallowed]}}]}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: audit, namespace: shop}
spec: {action: AUDIT, rules: [{to: [{operation: {paths: [/marked]}}]}]}
`
	w := newWorld(t)
	logFile := filepath.Join(t.TempDir(), "access.log")
	files := archive(policies, "")
	files.Files = append(files.Files[:2], txtar.File{Name: "mesh.yaml", Data: []byte("accessLogFile: " + logFile + `
accessLogFormat: "%REQ(:PATH)% %DYNAMIC_METADATA(envoy.common:access_log_hint)%\n"`)})
	tb := &table{name: "tried", archive: files, http: uint32(testport.Free(t))}
	admin := uint32(testport.Free(t))
	runEnvoy(t, &bootstrapv3.Bootstrap{
		Admin: &bootstrapv3.Admin{Address: socket(address, admin)},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Clusters:  w.backends(t),
			Listeners: []*listenerv3.Listener{w.listen(t, tb.http, inboundFilters(t, gen.New(), w.scope(t, tb), 8080))},
		},
	})
	for _, path := range []string{"/", "/denied", "/denied", "/unallowed", "/marked"} {
		if got := w.request(t, tb, "-", []string{"GET", "web.example", path}); got != "200" {
			t.Errorf("%s: got %s", path, got)
		}
	}
	resp, err := http.Get(fmt.Sprintf("http://%s:%d/stats?filter=rbac", address, admin))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stats, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"istio_dry_run_deny_.shadow_denied: 2", "istio_dry_run_deny_.shadow_allowed: 3",
		"istio_dry_run_allow_.shadow_denied: 1", "istio_dry_run_allow_.shadow_allowed: 4", "rbac.denied: 0",
	} {
		if !strings.Contains(string(stats), want+"\n") {
			t.Errorf("%q is not among:\n%s", want, stats)
		}
	}
	const want = "/ false\n/denied false\n/denied false\n/unallowed false\n/marked true\n"
	got := ""
	for end := time.Now().Add(20 * time.Second); got != want &&
		time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(logFile)
		if err != nil {
			t.Fatal(err)
		}
		got = string(text)
	}
	if got != want {
		t.Errorf("the log says:\n%s\nwant:\n%s", got, want)
	}
}
