package liblog

import (
	"log"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// Messages of gRPC are written to the log after Follow, and repeated messages are limited.
func TestLog(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	l := &Log{}
	g := l.grpc()
	g.Error("before there is a log")
	l.Follow(hclog.New(&hclog.LoggerOptions{Name: "ashored", Output: &out, Level: hclog.Info, JSONFormat: true}))
	g.Errorf("[transport] Client received GoAway: %s\n", "too_many_pings")
	g.Warning("an attempt failed")
	g.Infoln("a channel was made")
	log.New(l, "", 0).Print("Unsolicited response received on idle HTTP channel") // no more than an attempt that failed
	got := out.String()
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, `"@level":"warn"`) ||
		!strings.Contains(got, `"@module":"ashored.library"`) ||
		!strings.Contains(got, `"text":"[transport] Client received GoAway: too_many_pings"`) {
		t.Errorf("got %s", got)
	}
	for range 1000 {
		g.Error("again")
	}
	if n := strings.Count(out.String(), "again"); n == 0 || n > 60 {
		t.Errorf("the same message is written %d times", n)
	}
}
