package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testchild"
	"github.com/ashore-mesh/ashore/internal/testport"
)

// prometheus is a Prometheus that runs until the test ends.
type prometheus struct{ address string }

// scraping is the configuration of docs/tasks/observe.md, for one replica, and more often. %s are the
// addresses of the replica's metrics and the file with the token.
const scraping = `
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: ashore
  http_sd_configs:
  - url: http://%s/prometheus/targets
    authorization: {credentials_file: %s}
    refresh_interval: 1s
  relabel_configs:
  - {action: labelmap, regex: __meta_ashore_(kind|namespace|workload|cluster)}
  - {source_labels: [__meta_ashore_proxy], target_label: proxy}
`

// startPrometheus starts one that finds ashored and all agents of a mesh.
func startPrometheus(t *testing.T, m *harness.Mesh) *prometheus {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	err := errors.Join(os.WriteFile(m.TargetsToken(), []byte("secret\n"), 0o600),
		os.WriteFile(file, fmt.Appendf(nil, scraping, m.Metrics(), m.TargetsToken()), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	p := &prometheus{address: testport.Address(t)}
	testchild.Run(t, exec.Command(testchild.Tool(t, "PROMETHEUS", "prometheus/prometheus"), "--config.file="+file,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.address, "--log.level=warn"))
	harness.Eventually(t, "Prometheus is ready", func() error {
		_, err := get("http://" + p.address + "/-/ready")
		return err
	})
	return p
}

// query returns how many numbers an expression has now.
func (p *prometheus) query(expr string) (int, error) {
	body, err := get("http://" + p.address + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return 0, err
	}
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any } `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, fmt.Errorf("%s: %w", expr, err)
	}
	numbers := 0
	for _, r := range answer.Data.Result {
		v, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", expr, err)
		}
		if !math.IsNaN(v) { // a quantile of nothing
			numbers++
		}
	}
	return numbers, nil
}

// promtool runs promtool with an input, and returns what it printed and its exit code.
func promtool(t *testing.T, input string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testchild.Tool(t, "PROMTOOL", "prometheus/promtool"), args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// get returns the body of an answer 200.
func get(address string) ([]byte, error) {
	resp, err := http.Get(address)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", address, resp.Status, body)
	}
	return body, err
}
