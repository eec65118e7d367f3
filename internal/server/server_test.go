package server

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Thousands of problems that appear at once, or are over, are some lines of the log, and their
// number.
func TestReporter(t *testing.T) {
	t.Parallel()
	var many []feed.Problem
	for i := range 10_000 {
		many = append(many, feed.Problem{Severity: feed.Warning, Text: fmt.Sprintf("no. %d", i)})
	}
	for name, c := range map[string]struct {
		appeared, gone []feed.Problem
		lines          int
		last           string
	}{
		"few":            {appeared: many[:maxLogged], lines: maxLogged, last: "no. 49"},
		"many":           {appeared: many, lines: maxLogged + 1, last: "problems=9950"},
		"many are over":  {gone: many, lines: maxLogged + 1, last: "problems=9950"},
		"some, and over": {appeared: many[:2], gone: many[2:3], lines: 3, last: "no. 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			problemLogger(hclog.New(&hclog.LoggerOptions{Output: &log}))(c.appeared, c.gone)
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			if last := lines[len(lines)-1]; len(lines) != c.lines || !strings.Contains(last, c.last) {
				t.Errorf("%d lines, the last %q; want %d, the last with %q", len(lines), last, c.lines, c.last)
			}
		})
	}
}
