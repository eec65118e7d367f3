package metrics

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
)

// envoyPrefix is what Envoy puts before the names of the statistics of package xds/gen/telemetry.
const envoyPrefix = "envoy_istio_"

// maxLine limits a line of an exposition, in bytes.
const maxLine = 1 << 20

// Rewrite copies an exposition of Envoy in Prometheus' text format. Metrics of requests and
// connections get Istio's names, and Istio's labels for a proxy of workload own; all others stay as
// they are.
func Rewrite(w io.Writer, r io.Reader, own Workload) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	out := bufio.NewWriter(w)
	var last, labels string // the lines of a histogram have the same labels
	for in.Scan() {
		line := in.Bytes()
		if comment, ok := bytes.CutPrefix(line, []byte("# TYPE "+envoyPrefix)); ok {
			fmt.Fprintf(out, "# TYPE istio_%s\n", comment)
			continue
		}
		name, rest, ok := bytes.Cut(line, []byte("{"))
		metric, ours := bytes.CutPrefix(name, []byte(envoyPrefix))
		end := bytes.LastIndexByte(rest, '}')
		if !ok || !ours || end < 0 {
			out.Write(line)
			out.WriteByte('\n')
			continue
		}
		text, le, isBucket := strings.Cut(string(rest[:end]), `,le="`)
		if text != last {
			last, labels = text, istioLabels(parseLabels(text), own)
		}
		fmt.Fprintf(out, "istio_%s{%s", metric, labels)
		if isBucket {
			fmt.Fprintf(out, `,le="%s`, le)
		}
		fmt.Fprintf(out, "}%s\n", rest[end+1:])
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("metrics of Envoy: %w", err)
	}
	return out.Flush()
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
