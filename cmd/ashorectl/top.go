package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// Metrics that "top" reads. Source: istio.io, "Istio Standard Metrics".
const (
	requestsMetric = "istio_requests_total"
	bucketsMetric  = "istio_request_duration_milliseconds_bucket"
)

// traffic is how many requests something receives, and how they end.
type traffic struct {
	Name string `json:"name"`
	// Requests is per second, and Errors the share of failed requests among them, 0 to 1.
	Requests float64 `json:"requests"`
	Errors   float64 `json:"errors"`
	// P50 and P99 are in milliseconds; zero: not known.
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

func (t *tool) topCommand() *cobra.Command {
	var prometheus, proxy string
	var window time.Duration
	cmd := &cobra.Command{
		Use:   "top [services | workloads]",
		Short: "Show requests per second, errors and latency of services or workloads",
		Example: `  ashorectl top
  ashorectl top workloads --prometheus http://prometheus.example:9090 --window 1h
  ashorectl top --proxy 10.0.0.7`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: words("services", "workloads"),
		RunE: func(cmd *cobra.Command, args []string) error {
			labels := []string{"destination_service"}
			switch strings.Join(args, "") {
			case "", "services", "svc":
			case "workloads":
				labels = []string{"destination_workload_namespace", "destination_workload"}
			default:
				return usage(cmd, fmt.Errorf("%s: want services (svc) or workloads", args[0]))
			}
			switch {
			case cmd.Flags().Changed("window") && window <= 0:
				return usage(cmd, fmt.Errorf("--window %s: want more than 0s", window))
			case proxy != "" && prometheus != "":
				return usage(cmd, errors.New("--proxy and --prometheus exclude each other"))
			}
			var requests, buckets model.Vector
			var err error
			if proxy != "" { // Envoy updates histograms every 5 s
				requests, buckets, err = scrapeTwice(cmd.Context(), proxy, cmp.Or(window, 10*time.Second))
			} else {
				requests, buckets, err = t.askPrometheus(cmd, prometheus, cmp.Or(window, 5*time.Minute), labels)
			}
			if err != nil {
				return err
			}
			list := summarize(requests, buckets, labels)
			return t.print(cmd, list, trafficTable(list))
		},
	}
	cmd.Flags().StringVar(&prometheus, "prometheus", "", "`URL` of Prometheus (default: setting metrics.prometheus)")
	cmd.Flags().StringVar(&proxy, "proxy", "",
		"instead scrape the agent at this `address` twice: what its workload sends and receives")
	cmd.Flags().DurationVar(&window, "window", 0, "time that is looked at (default 5m, with --proxy 10s)")
	return cmd
}

// askPrometheus returns the rates of requests and of their latencies over a window.
func (t *tool) askPrometheus(cmd *cobra.Command, url string, window time.Duration,
	labels []string) (requests, buckets model.Vector, err error) {
	if url == "" {
		s, err := ask(t, cmd, admin.CallStatus, admin.None{})
		if err != nil {
			return nil, nil, err
		}
		if url = s.Prometheus; url == "" {
			return nil, nil, usage(cmd, errors.New("no Prometheus is known: set metrics.prometheus of ashored, or use "+
				"--prometheus URL, or --proxy ADDRESS for one machine"))
		}
	}
	const query = "sum by (reporter,response_code,grpc_response_status,le,%s) (rate(%s[%dms]))"
	by := strings.Join(labels, ",")
	requests, err = queryPrometheus(cmd.Context(), url, fmt.Sprintf(query, by, requestsMetric, window.Milliseconds()))
	if err == nil {
		buckets, err = queryPrometheus(cmd.Context(), url, fmt.Sprintf(query, by, bucketsMetric, window.Milliseconds()))
	}
	return requests, buckets, err
}

// reported is what one side of connections reports of one name.
type reported struct{ reporter, name string }

// measured are the rates of one row.
type measured struct {
	requests, errors float64
	buckets          map[float64]float64 // of latencies, cumulative, by upper bound
}

// summarize makes a row of all samples with equal labels, the most requests first. Where sources
// report, what the destination reports of the same requests does not count: only sources count
// requests that reach no destination.
func summarize(requests, buckets model.Vector, labels []string) []traffic {
	all := map[reported]*measured{}
	of := func(s *model.Sample) *measured {
		var name []string
		for _, l := range labels {
			name = append(name, string(s.Metric[model.LabelName(l)]))
		}
		key := reported{string(s.Metric["reporter"]), strings.Join(name, "/")}
		if all[key] == nil {
			all[key] = &measured{buckets: map[float64]float64{}}
		}
		return all[key]
	}
	for _, s := range requests {
		m := of(s)
		m.requests += float64(s.Value)
		if failed(string(s.Metric["response_code"]), string(s.Metric["grpc_response_status"])) {
			m.errors += float64(s.Value)
		}
	}
	for _, s := range buckets {
		if le, err := strconv.ParseFloat(string(s.Metric["le"]), 64); err == nil {
			of(s).buckets[le] += float64(s.Value)
		}
	}
	out := []traffic{}
	for key, m := range all {
		better := all[reported{"source", key.name}]
		if m.requests > 0 && (m == better || better == nil || better.requests == 0) {
			out = append(out, traffic{Name: key.name, Requests: m.requests, Errors: m.errors / m.requests,
				P50: quantile(0.5, m.buckets), P99: quantile(0.99, m.buckets)})
		}
	}
	slices.SortFunc(out, func(a, b traffic) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// failed reports whether requests with these codes count as errors: of HTTP 5xx and 0 (no response),
// of gRPC what is the server's fault. Source: OpenTelemetry, "Semantic conventions for gRPC".
func failed(httpCode, grpcStatus string) bool {
	return strings.HasPrefix(httpCode, "5") || httpCode == "0" ||
		slices.Contains([]string{"2", "4", "12", "13", "14", "15"}, grpcStatus)
}

// quantile estimates a quantile of cumulative buckets by their upper bounds. Zero: there are none.
// Source: Prometheus, histogram_quantile.
func quantile(q float64, buckets map[float64]float64) float64 {
	rank := q * buckets[math.Inf(1)]
	low, below := 0.0, 0.0
	for _, le := range slices.Sorted(maps.Keys(buckets)) {
		n := buckets[le]
		switch {
		case n == 0, n < rank:
			low, below = le, n
		case math.IsInf(le, 1):
			return low // the highest bound that there is
		default:
			return low + (le-low)*(rank-below)/(n-below)
		}
	}
	return 0
}

func trafficTable(list []traffic) string {
	if len(list) == 0 {
		return "no requests: send some meanwhile, or use a longer --window. Prometheus needs two scrapes in it.\n"
	}
	tb := newTable("NAME", "REQUESTS/S", "ERRORS", "P50", "P99")
	duration := func(ms float64) string {
		if ms == 0 {
			return ""
		}
		return strconv.FormatFloat(ms, 'f', 1, 64) + "ms"
	}
	for _, x := range list {
		tb.add(x.Name, fmt.Sprintf("%.2f", x.Requests), fmt.Sprintf("%.2f%%", 100*x.Errors), duration(x.P50),
			duration(x.P99))
	}
	return tb.String()
}
