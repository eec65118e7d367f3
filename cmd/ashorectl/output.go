package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// The values of the flag --output.
const (
	tableFormat = "table"
	wideFormat  = "wide" // a table with more columns
	jsonFormat  = "json"
	yamlFormat  = "yaml"
	nameFormat  = "name"
)

func formats() []string { return []string{tableFormat, wideFormat, jsonFormat, yamlFormat, nameFormat} }

// print prints v as JSON or YAML, or else text.
func (t *tool) print(cmd *cobra.Command, v any, text string) error {
	text = printableLines(text)
	switch t.output {
	case jsonFormat:
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return fmt.Errorf("encode JSON: %w", err)
		}
		text = string(b) + "\n"
	case yamlFormat:
		var err error
		if text, err = toYAML(v); err != nil {
			return fmt.Errorf("encode YAML: %w", err)
		}
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text)
	return err
}

// toYAML encodes v with its JSON names.
func toYAML(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	var doc any
	if err := yaml.Unmarshal(b, &doc); err != nil { // JSON is YAML
		return "", err
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	err = enc.Encode(doc)
	return out.String(), errors.Join(err, enc.Close())
}

// printable replaces control characters and line ends. Workloads choose their own names and
// messages: these must neither control a terminal nor add rows to a table.
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

// table is rows below a header.
type table struct {
	rows [][]string // the first one is the header
}

func newTable(header ...string) *table { return &table{rows: [][]string{header}} }

// add adds a row. An empty cell is shown as "-".
func (tb *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = cmp.Or(printable(fmt.Sprint(c)), "-")
	}
	tb.rows = append(tb.rows, row)
}

// String returns the aligned table; empty if it has no rows.
func (tb *table) String() string {
	if len(tb.rows) == 1 {
		return ""
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range tb.rows {
		fmt.Fprintln(w, strings.Join(row, "\t")) // a strings.Builder returns no errors
	}
	_ = w.Flush()
	return b.String()
}

// sections joins the texts that are not empty, with an empty line between them.
func sections(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "\n")
}

// age returns the time since t in its largest unit; empty if t is zero.
func age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return inUnit(max(0, time.Since(t)))
}

// when returns "in 5h", or "5h ago" if t has passed; empty if t is zero.
func when(t time.Time) string {
	switch left := time.Until(t).Round(time.Second); {
	case t.IsZero():
		return ""
	case left > 0:
		return "in " + inUnit(left)
	default:
		return age(t) + " ago"
	}
}

// inUnit returns a duration in its largest unit, rounded down: "59m", "23h", "30d".
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

// local returns a time of day and date in the local time zone.
func local(t time.Time) string { return t.Local().Format(time.DateTime) }

// pairs returns "a=1,b=2" with the separator ",".
func pairs(m map[string]string, separator string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, separator)
}

// count returns "1 error" or "2 errors".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
