package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Each source has a line, and what keeps one from its origin stands below.
func TestSourcesTable(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var b strings.Builder
	if err := sourcesTable(&b, []feed.SourceStatus{
		{Name: "file:/etc/x", Synced: true, Required: true, Items: 3, Problems: 1, Stale: 1, AsOf: now.Add(-time.Hour), Why: "a.yaml: not YAML", Last: now.Add(-time.Minute)},
		{Name: "consul:dc1", Synced: true, Items: 20, Error: "cannot connect", Since: now.Add(-2 * time.Hour), Last: now.Add(-time.Second), Lag: 3 * time.Millisecond, Setting: "dc1"},
		{Name: "mcp:a", Required: true, Lag: 12345 * time.Nanosecond}, {Name: "mcp:b"}, {Name: "file:/y", Synced: true, Reading: 2001},
		{Name: "store:/x", Synced: true, LastError: "was away", LastErrorAt: now.Add(-3 * time.Minute)},
	}, false, now); err != nil {
		t.Fatal(err)
	}
	const want = `SOURCE       STATE                ITEMS  PROBLEMS  AGE  LAST CHANGE  LAG   ORIGIN
file:/etc/x  stale                3      1         1h   1m           -     -
dc1          stale                20     0         2h   1s           3ms   consul:dc1
mcp:a        not read, waits      0      0         -    -            12µs  -
mcp:b        not read             0      0         -    -            -     -
file:/y      reading, 2001 files  0      0         -    -            -     -
store:/x     ok                   0      0         -    -            -     -
file:/etc/x: older content than there is, or may be, is at work in 1 part, the oldest read 1h ago: a.yaml: not YAML
dc1: cannot connect, for 2h
store:/x: well again for 3m; before: was away
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
