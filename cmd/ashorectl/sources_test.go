package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Each source has a row, and the reasons are below the table.
func TestSourcesTable(t *testing.T) {
	t.Parallel()
	now := time.Now()
	got := sourcesText([]feed.SourceStatus{
		{Name: "files", Synced: true, Required: true, Items: 3, Folder: "/etc/x", Problems: 1, Stale: 1, LastUpdate: now.Add(-time.Minute)},
		{Name: "consul:dc1", Synced: true, Items: 20, Retained: 2, Error: "cannot connect", ErrorSince: now.Add(-2 * time.Hour), LastUpdate: now.Add(-time.Second)},
		{Name: "mcp:a", Required: true}, {Name: "mcp:b", Error: "refused", ErrorSince: now.Add(-5 * time.Second)}, {Name: "files:y", Synced: true, Reading: 2001}, {Name: "mcp:c", Items: 4}, {Name: "mcp:d", Error: "reset", ErrorSince: now},
		{Name: "store", Synced: true}, {Name: "files:z", Synced: true, Retained: 1},
	})
	const want = `SOURCE      STATE                ITEMS  RETAINED  PROBLEMS  LAST CHANGE  FOLDER
files       stale                3      0         1         1m           /etc/x
consul:dc1  down                 20     2         0         1s           -
mcp:a       not read             0      0         0         -            -
mcp:b       down                 0      0         0         -            -
files:y     reading, 2001 files  0      0         0         -            -
mcp:c       stale                4      0         0         -            -
mcp:d       down                 0      0         0         -            -
store       ok                   0      0         0         -            -
files:z     retained             0      1         0         -            -
files: an older version of 1 part is active: see "ashorectl problems"
consul:dc1: cannot connect, for 2h
mcp:a: it has not been read yet
mcp:b: refused, for 5s
files:y: its files are being read
mcp:c: it has not been read since the start; its last known content is active
mcp:d: reset
files:z: retains 1 item that it no longer has: see "ashorectl problems"
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
