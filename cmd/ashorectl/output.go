package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"go.yaml.in/yaml/v3"
)

// format is how an answer is written.
type format string

const (
	table    format = "table"
	jsonText format = "json"
	yamlText format = "yaml"
)

// String, Set and Type make it a flag.
func (f *format) String() string { return string(*f) }

func (f *format) Set(s string) error {
	if !slices.Contains([]format{table, jsonText, yamlText}, format(s)) {
		return fmt.Errorf("want table, json or yaml")
	}
	*f = format(s)
	return nil
}

func (f *format) Type() string { return "format" }

// write writes v as the format says; people draws the table.
func (f *format) write(w io.Writer, v any, people func(io.Writer) error) error {
	switch *f {
	case jsonText:
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		_, err = w.Write(append(b, '\n'))
		return err
	case yamlText:
		b, err := toYAML(v)
		if err != nil {
			return fmt.Errorf("write YAML: %w", err)
		}
		_, err = w.Write(b)
		return err
	default:
		var b strings.Builder
		if err := people(&b); err != nil {
			return err
		}
		_, err := io.WriteString(w, printableLines(b.String()))
		return err
	}
}

// printable is text without what a terminal would act on, and without ends of lines, which would
// make one row two: what workloads call themselves, and what they say, is theirs to choose.
func printable(text string) string { return strings.ReplaceAll(printableLines(text), "\n", "?") }

// printableLines is printable for text of several lines.
func printableLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}

// toYAML is v's JSON as YAML, fields in the same order.
func toYAML(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil { // JSON is YAML
		return nil, err
	}
	plain(&doc)
	var out strings.Builder
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return nil, err
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	return []byte(out.String()), nil
}

// plain drops JSON's quotes and braces where YAML needs none.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		plain(c)
	}
}

// columns writes rows under a header, aligned.
func columns(w io.Writer, header []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range append([][]string{header}, rows...) {
		cells := make([]string, len(r))
		for i, c := range r {
			cells[i] = printable(c)
		}
		if _, err := fmt.Fprintln(tw, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// ago is the time since t in one unit, "-" when there is none.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return inUnit(max(0, now.Sub(t)))
}

// span is a length of time in one unit, from the nearest second, at least one.
func span(d time.Duration) string { return inUnit(max(d, time.Second).Round(time.Second)) }

// inUnit is a length of time in its largest unit, rounded down: "59m", "23h", "30d".
func inUnit(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// count is "1 error", "2 errors".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// orDash is s, or "-" when it is empty.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
