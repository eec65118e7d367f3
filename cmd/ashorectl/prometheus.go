package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ashore-mesh/ashore/internal/task"
)

// statusPort serves the metrics of an agent and its Envoy.
const statusPort = "15020"

// maxExposition limits what is read of one answer, in bytes.
const maxExposition = 256 << 20

// get returns the answer to a request, whatever its status. The caller closes it.
func get(ctx context.Context, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	return (&http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
}

// queryPrometheus evaluates an expression now. Source: prometheus.io, "HTTP API", instant queries.
func queryPrometheus(ctx context.Context, base, expression string) (model.Vector, error) {
	at, err := url.Parse(base)
	if err != nil { // err may have a password
		return nil, errors.New("the URL of Prometheus is not valid: want http://HOST:PORT or http://USER:PASSWORD@HOST:PORT")
	}
	at = at.JoinPath("api/v1/query")
	shown := at.Redacted()
	at.RawQuery = url.Values{"query": {expression}}.Encode()
	resp, err := get(ctx, at.String())
	if err != nil {
		return nil, fmt.Errorf("ask Prometheus: %w", err)
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result model.Vector }
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, maxExposition)).Decode(&answer)
	err = errors.Join(err, resp.Body.Close())
	switch {
	case answer.Status == "error":
		return nil, fmt.Errorf("ask Prometheus at %s: %s", shown, answer.Error)
	case err != nil:
		return nil, fmt.Errorf("ask Prometheus at %s: HTTP status %s, not an answer of its API: %w", shown, resp.Status, err)
	case answer.Status != "success":
		return nil, fmt.Errorf("ask Prometheus at %s: HTTP status %s, not an answer of its API", shown, resp.Status)
	}
	return answer.Data.Result, nil
}

// scrapeTwice returns the rates of requests and of their latencies between two scrapes of an agent.
func scrapeTwice(ctx context.Context, proxy string, window time.Duration) (requests, buckets model.Vector, err error) {
	if _, _, err := net.SplitHostPort(proxy); err != nil {
		proxy = net.JoinHostPort(proxy, statusPort)
	}
	before, err := scrape(ctx, proxy)
	if err != nil {
		return nil, nil, err
	}
	start := time.Now()
	if !task.Sleep(ctx, window) {
		return nil, nil, ctx.Err()
	}
	after, err := scrape(ctx, proxy)
	if err != nil {
		return nil, nil, err
	}
	old := map[model.Fingerprint]model.SampleValue{}
	for _, s := range before {
		old[s.Metric.Fingerprint()] = s.Value
	}
	seconds := model.SampleValue(time.Since(start).Seconds())
	for _, s := range after {
		if last := old[s.Metric.Fingerprint()]; last <= s.Value { // else Envoy restarted
			s.Value -= last
		}
		s.Value /= seconds
		switch s.Metric[model.MetricNameLabel] {
		case requestsMetric:
			requests = append(requests, s)
		case bucketsMetric:
			buckets = append(buckets, s)
		}
	}
	return requests, buckets, nil
}

// scrape reads the metrics of an agent.
func scrape(ctx context.Context, address string) (model.Vector, error) {
	resp, err := get(ctx, "http://"+address+"/metrics")
	if err != nil {
		return nil, fmt.Errorf("scrape the agent: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(resp.Body, maxExposition))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("read the metrics of the agent at %s (HTTP status %s): %w", address, resp.Status, err)
	}
	return expfmt.ExtractSamples(&expfmt.DecodeOptions{}, slices.Collect(maps.Values(families))...)
}
