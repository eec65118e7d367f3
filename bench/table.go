package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
)

// missed is the verdict on a target that is not reached.
const missed = "**missed**"

func judge(reached bool) string {
	if reached {
		return "reached"
	}
	return missed
}

// table is a table of results in Markdown.
type table struct{ strings.Builder }

// newTable begins a table. A column whose name ends with a colon has numbers.
func newTable(title string, columns ...string) *table {
	t := &table{}
	fmt.Fprintf(t, "**%s**\n\n", title)
	rule := make([]string, len(columns))
	for i, c := range columns {
		name, numbers := strings.CutSuffix(c, ":")
		columns[i], rule[i] = name, "---"
		if numbers {
			rule[i] = "--:"
		}
	}
	t.row(columns...)
	t.row(rule...)
	return t
}

func (t *table) row(cells ...string) {
	t.WriteByte('|')
	for _, c := range cells {
		if c != "" {
			t.WriteString(" " + c)
		}
		t.WriteString(" |")
	}
	t.WriteByte('\n')
}

// figure adds a row with the most that a figure may be. Zero is no limit.
func (t *table) figure(phase, what string, v float64, unit string, most float64) {
	limit, verdict := "", ""
	if most > 0 {
		limit, verdict = fmt.Sprintf("%g %s", most, unit), judge(v <= most)
	}
	t.row(phase, what, number(v, unit), limit, verdict)
}

// number is a figure with its unit.
func number(v float64, unit string) string {
	decimals := 3
	switch {
	case unit == "MB" || unit == "ms":
		decimals = 0
	case v >= 10:
		decimals = 1
	}
	return fmt.Sprintf("%.*f %s", decimals, v, unit)
}

// String is the table, with a blank line behind it.
func (t *table) String() string { return t.Builder.String() + "\n" }

// machine says where the figures are from.
func machine() string {
	model := runtime.GOARCH
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
			model = cpus[0].ModelName
		}
	}
	return fmt.Sprintf("%d cores of %s, %s", runtime.NumCPU(), model, runtime.Version())
}

// marks are the lines between which a table of results stands in a file.
func marks(name string) (begin, end string) {
	return "<!-- " + name + ": begin -->", "<!-- " + name + ": end -->"
}

// writeTable replaces what stands between the marks of that name in the file path.
func writeTable(path, name, command, machine, text string) error {
	begin, end := marks(name)
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	head, rest, began := strings.Cut(string(b), begin)
	_, foot, ended := strings.Cut(rest, end)
	if !began || !ended {
		return fmt.Errorf("write the results: %s lacks the lines %q and %q that hold them", path, begin, end)
	}
	body := fmt.Sprintf("%s%s\n\n`%s` on %s:\n\n%s%s%s", head, begin, command, machine, text, end, foot)
	if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}
