package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Each source has a row, and the reasons are below the table.
func TestSourcesTable(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var b strings.Builder
	if err := sourcesTable(&b, []feed.SourceStatus{
		{Name: "file:/etc/x", Synced: true, Required: true, Items: 3, Problems: 1, Stale: 1, LastUpdate: now.Add(-time.Minute)},
		{Name: "consul:dc1", Synced: true, Items: 20, Retained: 2, Error: "cannot connect", ErrorSince: now.Add(-2 * time.Hour), LastUpdate: now.Add(-time.Second), Setting: "dc1"},
		{Name: "mcp:a", Required: true}, {Name: "mcp:b"}, {Name: "file:/y", Synced: true, Reading: 2001}, {Name: "mcp:c", Items: 4},
		{Name: "store:/x", Synced: true}, {Name: "file:/z", Synced: true, Retained: 12},
	}, false, now); err != nil {
		t.Fatal(err)
	}
	const want = `SOURCE       STATE                ITEMS  RETAINED  PROBLEMS  LAST CHANGE  ORIGIN
file:/etc/x  stale                3      0         1         1m           -
dc1          down                 20     2         0         1s           consul:dc1
mcp:a        not read, waits      0      0         0         -            -
mcp:b        not read             0      0         0         -            -
file:/y      reading, 2001 files  0      0         0         -            -
mcp:c        stale                4      0         0         -            -
store:/x     ok                   0      0         0         -            -
file:/z      retained             0      12        0         -            -
file:/etc/x: older content is used of 1 part: see "ashorectl problems"
dc1: cannot connect, for 2h
mcp:a: not read yet
mcp:b: not read yet
mcp:c: not read yet
file:/z: 12 items are used although it does not supply them any more: see "ashorectl problems"
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
