package testlog

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a test that records its calls.
type recorder struct {
	testing.TB
	lines   []string
	cleanup []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
func (r *recorder) Logf(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// Lines reach the test without a line feed of their own, and nothing reaches a test that has ended:
// the testing package would panic.
func TestNew(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	log := New(r).Named("xds")
	log.Trace("envoy connected", "proxy", "web-1")
	for _, f := range slices.Backward(r.cleanup) {
		f()
	}
	log.Info("too late")
	if d := cmp.Diff([]string{"[TRACE] xds: envoy connected: proxy=web-1"}, r.lines); d != "" {
		t.Fatalf("lines (-want +got):\n%s", d)
	}
}
