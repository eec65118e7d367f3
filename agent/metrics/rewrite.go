package metrics

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// envoyPrefix is what Envoy puts before the names of the statistics of package xds/gen/telemetry.
const envoyPrefix = "envoy_istio_"

// maxLine limits a line of an exposition, in bytes.
const maxLine = 1 << 20

// Rewrite copies an exposition of Envoy in Prometheus' text format. Metrics of requests and
// connections get Istio's names, and Istio's labels for a proxy of workload own; series that become
// equal are added up. All others stay as they are.
func Rewrite(w io.Writer, r io.Reader, own Workload) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	out := bufio.NewWriter(w)
	f := family{own: own}
	for in.Scan() {
		line := in.Bytes()
		if bytes.Contains(line, []byte("_message_count")) {
			line = []byte(messages.Replace(string(line)))
		}
		if f.add(line) {
			continue
		}
		f.flush(out)
		if comment, ok := bytes.CutPrefix(line, []byte("# TYPE "+envoyPrefix)); ok {
			line = fmt.Appendf(nil, "# TYPE istio_%s", comment)
		}
		out.Write(line)
		out.WriteByte('\n')
	}
	f.flush(out)
	if err := in.Err(); err != nil {
		return fmt.Errorf("metrics of Envoy: %w", err)
	}
	return out.Flush()
}

// messages gives Envoy's counters of gRPC messages the names that its loggers would give them: a
// logger cannot count messages.
var messages = strings.NewReplacer("envoy_cluster_grpc_request_message_count", envoyPrefix+"request_messages_total",
	"envoy_cluster_grpc_response_message_count", envoyPrefix+"response_messages_total")

// family collects the series of one metric.
type family struct {
	own      Workload
	series   []*series
	byLabels map[string]*series
	// raw are Envoy's labels of the latest line, and latest is their series: the lines of a histogram
	// follow each other.
	raw    string
	latest *series
}

// series has Istio's labels.
type series struct {
	labels  string
	samples []sample
}

// sample is a line of a series. bound is that of a histogram's bucket, else empty.
type sample struct {
	name, bound string
	value       float64
}

// add adds a line, unless it is not one of requests or connections.
func (f *family) add(line []byte) bool {
	metric, ours := bytes.CutPrefix(line, []byte(envoyPrefix))
	name, rest, ok := bytes.Cut(metric, []byte("{"))
	end := bytes.LastIndex(rest, []byte("} "))
	if !ours || !ok || end < 0 {
		return false
	}
	value, err := strconv.ParseFloat(string(rest[end+2:]), 64)
	if err != nil {
		return false
	}
	raw, bound := cutBound(string(name), string(rest[:end]))
	if raw != f.raw || f.latest == nil {
		f.raw, f.latest = raw, f.at(istioLabels(parseLabels(raw), f.own))
	}
	f.latest.add(sample{string(name), bound, value})
	return true
}

// cutBound takes the bound of a histogram's bucket off Envoy's labels. It is the last of them. The
// values of others may contain `,le="`.
func cutBound(name, labels string) (rest, bound string) {
	at := strings.LastIndex(labels, `,le="`)
	if at < 0 || !strings.HasSuffix(name, "_bucket") {
		return labels, ""
	}
	return labels[:at], strings.TrimSuffix(labels[at+len(`,le="`):], `"`)
}

// at returns the series with labels, a new one if there is none.
func (f *family) at(labels string) *series {
	s := f.byLabels[labels]
	if s == nil {
		if f.byLabels == nil {
			f.byLabels = map[string]*series{}
		}
		s = &series{labels: labels}
		f.byLabels[labels] = s
		f.series = append(f.series, s)
	}
	return s
}

func (s *series) add(x sample) {
	for i := range s.samples {
		if have := &s.samples[i]; have.name == x.name && have.bound == x.bound {
			have.value += x.value
			return
		}
	}
	s.samples = append(s.samples, x)
}

// flush writes the series and forgets them.
func (f *family) flush(out *bufio.Writer) {
	for _, s := range f.series {
		for _, x := range s.samples {
			fmt.Fprintf(out, "istio_%s{%s", x.name, s.labels)
			if x.bound != "" {
				fmt.Fprintf(out, `,le="%s"`, x.bound)
			}
			fmt.Fprintf(out, "} %s\n", strconv.FormatFloat(x.value, 'f', -1, 64))
		}
	}
	*f = family{own: f.own}
}

// unescape is the reverse of how values of labels are written.
var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")

// parseLabels parses name="value",name="value".
func parseLabels(text string) map[string]string {
	out := map[string]string{}
	for text != "" {
		name, rest, ok := strings.Cut(text, `="`)
		if !ok {
			break
		}
		end := 0
		for end < len(rest) && rest[end] != '"' {
			if rest[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end, len(rest))
		out[name] = unescape.Replace(rest[:end])
		text = strings.TrimPrefix(strings.TrimPrefix(rest[end:], `"`), ",")
	}
	return out
}
