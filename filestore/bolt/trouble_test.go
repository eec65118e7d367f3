package bolt

import (
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// A write as large as one that failed ends the trouble, and a smaller one does not, as it finds room in the file: else the trouble would
// be told and taken back all the time. Since when it lasts stays.
func TestTrouble(t *testing.T) {
	t.Parallel()
	var tr trouble
	if over := tr.took(0); over.Error != "" {
		t.Errorf("without trouble %+v is over", over)
	}
	at := time.Unix(1000, 0)
	if began, changed := tr.failed("full", 100, false, at); !began || !changed {
		t.Error("the first failure is none")
	}
	if began, changed := tr.failed("full", 50, false, at.Add(time.Minute)); began || changed {
		t.Error("the same trouble is said to be another")
	}
	if began, changed := tr.failed("read-only", 50, false, at.Add(time.Minute)); began || !changed {
		t.Error("that its reason is another is not said")
	}
	tr.took(99)
	want := config.Outage{Error: "a write of 100 bytes read-only; what is there stays active, and smaller writes may succeed", Since: at}
	if got := tr.get(); got != want {
		t.Errorf("after a small write: got %+v, want %+v", got, want)
	}
	if over := tr.took(100); over != want || tr.get() != (config.Outage{}) {
		t.Errorf("after a large one: %+v is over, and %+v is left", over, tr.get())
	}
	tr.failed("full", 50, false, at)
	if began, changed := tr.failed("full", 1<<40, false, at); began || !changed || !strings.Contains(tr.get().Error, "1099511627776 bytes full") {
		t.Errorf("of a larger write that failed too it is told: %+v", tr.get())
	}
	if tr.took(maxRoom); tr.get().Error != "" {
		t.Error("it waits for a write of a terabyte")
	}
}

// Whether the disk takes something again is looked for ever more seldom, for as much as failed; never while a limit of the process stands
// in the way, as room on the disk says nothing of that.
func TestTroubleDue(t *testing.T) {
	t.Parallel()
	var tr trouble
	start := time.Unix(1000, 0)
	if _, due := tr.due(start); due {
		t.Error("due without trouble")
	}
	tr.failed("full", 100, false, start)
	var at []time.Duration
	for now := start; now.Before(start.Add(5 * time.Minute)); now = now.Add(time.Second) {
		if need, due := tr.due(now); due {
			if at = append(at, now.Sub(start)/time.Second); need != 100 {
				t.Errorf("it looks for %d bytes", need)
			}
		}
	}
	want := []time.Duration{1, 3, 7, 15, 31, 61, 91, 121, 151, 181, 211, 241, 271}
	if len(at) != len(want) {
		t.Fatalf("due after %d seconds, want %d", at, want)
	}
	for i := range want {
		if at[i] != want[i] {
			t.Errorf("due after %d seconds, want %d", at, want)
			break
		}
	}
	tr.failed("too large", 100, true, start)
	if _, due := tr.due(start.Add(time.Hour)); due {
		t.Error("due although a limit stands in the way")
	}
}
