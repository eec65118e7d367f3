package admin

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// The package's description has every route with the role that it needs, and no other.
func TestDocRoutes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^//\t([A-Z]+) +(/[^ ?{\[…]*)[^\n]*? (viewer|operator|admin) `).FindAllStringSubmatch(string(text), -1) {
		got[m[1]+" "+m[2]] = m[3]
	}
	s := New(Config{Backend: &fake{}, Log: testlog.New(t)})
	want := map[string]string{"GET /v1/audit": "operator", "GET /v1/services": "viewer", "GET /debug/pprof/": "admin"} // those that answer by streams
	for _, list := range [][]route{s.stateRoutes(), s.tokenRoutes(), s.authorityRoutes(), s.workloadRoutes(), s.explainRoutes(), s.storeRoutes(), s.maintenanceRoutes()} {
		for _, rt := range list {
			want[strings.ReplaceAll(rt.pattern, "{id}", "ID")] = rt.role.String()
		}
	}
	for pattern, role := range want {
		if got[pattern] != role {
			t.Errorf("%s needs the role %s, described is %q", pattern, role, got[pattern])
		}
		delete(got, pattern)
	}
	for pattern := range got {
		t.Errorf("%s is described, and not there", pattern)
	}
}
