package liblog

import (
	"log"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// What gRPC says stands in the log that is followed, and nowhere before there is one; what it says
// ever again does not fill it.
func TestLog(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	l := &Log{}
	l.Error("before there is a log")
	l.Follow(hclog.New(&hclog.LoggerOptions{Name: "ashored", Output: &out, Level: hclog.Info, JSONFormat: true}))
	l.Errorf("[transport] Client received GoAway: %s\n", "too_many_pings")
	l.Warning("an attempt failed")
	l.Infoln("a channel was made")
	log.New(l, "", 0).Print("Unsolicited response received on idle HTTP channel") // no more than an attempt that failed
	got := out.String()
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, `"@level":"warn"`) ||
		!strings.Contains(got, `"@module":"ashored.library"`) ||
		!strings.Contains(got, `"text":"[transport] Client received GoAway: too_many_pings"`) {
		t.Errorf("it says %s", got)
	}
	for range 1000 {
		l.Error("again")
	}
	if n := strings.Count(out.String(), "again"); n == 0 || n > 60 {
		t.Errorf("it says the same %d times", n)
	}
}
