package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/metrics.md names every metric that there is, and no other.
func TestMetricsDoc(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, line := range strings.Split(string(doc), "\n") {
		cell, _, row := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !row || !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, name := range regexp.MustCompile("`([a-z_]+)").FindAllStringSubmatch(cell, -1) {
			documented = append(documented, name[1])
		}
	}
	text := joinedMetrics(t)
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(text, -1) {
		name := m[1]
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") &&
			!slices.Contains(documented, name) {
			t.Errorf("docs/metrics.md does not have %s", name)
		}
	}
	code := sources(t, "../../ca", "../../xds", "../../internal/audit", "../../webhook", "../../internal/server", "../../agent",
		"../../xds/gen/telemetry", "../../agent/metrics")
	for _, name := range documented {
		statistic := strings.TrimPrefix(name, "istio_") // that Envoy keeps for the agent
		if !strings.Contains(text, "# TYPE "+name+" ") && !strings.Contains(code, `"`+statistic+`"`) {
			t.Errorf("docs/metrics.md has %s, which there is not", name)
		}
	}
}

// joinedMetrics are those of an ashored with a workload that has joined, and one that was refused.
func joinedMetrics(t *testing.T) string {
	t.Helper()
	s := newSecureSite(t)
	s.start(t)
	web, made := s.joined(t)
	if err := web.stream(t, webNode)(); err != nil {
		t.Fatal(err)
	}
	if err := s.newMember(t, made).ask(t, made.Token, "web-1"); err == nil {
		t.Fatal("a used token was taken")
	}
	s.until(t, "the workload counts", func() bool {
		return strings.Contains(s.metricsText(t), `ashore_workloads{state="valid"} 1`)
	})
	return s.metricsText(t)
}

// sources is the text of the Go files of folders.
func sources(t *testing.T, dirs ...string) string {
	t.Helper()
	var out strings.Builder
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(text)
		}
	}
	return out.String()
}

// The metrics of the authority say what was made and what is in force. Counters exist from the start.
func TestAuthorityMetrics(t *testing.T) {
	t.Parallel()
	text := joinedMetrics(t)
	for _, want := range []string{`ashore_workloads{state="valid"} 1`, "ashore_revocations_pending 0", "ashore_jwks_failing 0",
		`ashore_ca_issued_total{how="token"} 1`, `ashore_ca_issued_total{how="jwt"} 0`, `pilot_total_xds_rejects{type="cds"} 0`,
		`pilot_xds_refused_streams{reason="too many streams"} 0`, `pilot_push_triggers{type="global"} 1`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	for _, name := range []string{"citadel_server_root_cert_expiry_timestamp",
		"citadel_server_cert_chain_expiry_timestamp", "ashore_ca_server_expiry_timestamp_seconds"} {
		if !regexp.MustCompile(`(?m)^` + name + ` [12]\.\d+e\+09$`).MatchString(text) {
			t.Errorf("no %s in seconds since 1970", name)
		}
	}
}
