package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a log until the test ends.
func open(t *testing.T, c Config) *Log {
	t.Helper()
	if c.Path == "" {
		c.Path = filepath.Join(t.TempDir(), "audit.jsonl")
	}
	if c.Log == nil {
		c.Log = testlog.New(t)
	}
	l, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-l.ended: // the test closed it
			return
		default:
		}
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

// record records events with numbers as targets.
func record(l *Log, from, to int) {
	for i := from; i < to; i++ {
		l.Record(Event{Action: TokenUse, Target: fmt.Sprint(i)})
	}
}

// wantTail checks the targets of the latest n events; of a gap, how many are missing.
func wantTail(t *testing.T, l *Log, n int, want ...string) {
	t.Helper()
	var got []string
	events, err := l.Tail(n)
	for _, e := range events {
		got = append(got, e.Target+e.Details["missing"])
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("the latest %d: %v (-want +got):\n%s", n, err, d)
	}
}

func numbers(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// An event is a line of JSON when Record returns, in a file that only its owner reads.
func TestRecord(t *testing.T) {
	t.Parallel()
	l := open(t, Config{})
	at := time.Date(2026, 8, 1, 12, 0, 0, 0, time.FixedZone("X", 7200))
	e := Event{
		Time: at, Action: TokenRefuse, Actor: "10.0.0.9", Target: "a\nb\x00", Outcome: Refused,
		Reason: "ashore-join.a.secret", Details: map[string]string{"group": "shop/web"},
	}
	l.Record(e)
	l.Record(Event{Action: CALoad})
	text, err := os.ReadFile(l.file.path)
	lines := strings.SplitAfter(string(text), "\n")
	if err != nil || len(lines) != 3 {
		t.Fatalf("got %q, %v", lines, err)
	}
	want := `{"time":"2026-08-01T10:00:00Z","action":"token.refuse","actor":"10.0.0.9","target":"a\nb\u0000",` +
		`"outcome":"refused","reason":"ashore-join.a.(secret)","details":{"group":"shop/web"}}` + "\n"
	if d := cmp.Diff(want, lines[0]); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	var second Event
	if err := json.Unmarshal([]byte(lines[1]), &second); err != nil || second.Time.IsZero() || second.Outcome != OK {
		t.Errorf("got %+v, %v, want a time and ok", second, err)
	}
	if info, err := os.Stat(l.file.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
}

// Events that are recorded at the same time are all written.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	l := open(t, Config{Registerer: registry, MaxSize: 4 << 10, Keep: 100, Log: hclog.NewNullLogger()})
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() { record(l, 50*w, 50*w+50) })
	}
	wg.Wait()
	seen := map[string]bool{}
	events, err := l.Tail(2000)
	for _, e := range events {
		seen[e.Target] = true
	}
	if err != nil || len(seen) != 800 {
		t.Errorf("%d of 800 events are there, %v", len(seen), err)
	}
	if got := counted(t, registry, "ashore_audit_events_total"); got != 800 {
		t.Errorf("%v events are counted", got)
	}
}

func counted(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// A full file is renamed, a limited number is kept, and Tail reads them all.
func TestRotate(t *testing.T) {
	t.Parallel()
	l := open(t, Config{MaxSize: 300, Keep: 2})
	record(l, 0, 40)
	names, err := filepath.Glob(l.file.path + "*")
	if err != nil || len(names) != 3 {
		t.Fatalf("files %v, %v; want three", names, err)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.Size() > 300 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	wantTail(t, l, 4, numbers(36, 40)...)
	wantTail(t, l, 0)
}

// A file that cannot be renamed grows.
func TestRotateFails(t *testing.T) {
	t.Parallel()
	l := open(t, Config{MaxSize: 300, Keep: 1})
	if err := os.MkdirAll(filepath.Join(l.file.path+".1", "occupied"), 0o700); err != nil {
		t.Fatal(err)
	}
	record(l, 0, 10)
	if text, err := os.ReadFile(l.file.path); err != nil || bytes.Count(text, []byte("\n")) != 10 {
		t.Errorf("got %q, %v, want ten lines", text, err)
	}
}

// A line that a loss of power cut off is skipped, and spoils no other.
func TestTornLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, Config{Path: path})
	record(l, 0, 1)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < len(whole)-1; cut += 7 {
		if err := errors.Join(l.Close(), os.WriteFile(path, append(bytes.Clone(whole), whole[:cut]...),
			0o600)); err != nil {
			t.Fatal(err)
		}
		l = open(t, Config{Path: path})
		record(l, 1, 2)
		wantTail(t, l, 10, "0", "1")
	}
}

// breakDisk makes writes fail until it is called again.
func breakDisk(t *testing.T, l *Log) (mend func()) {
	t.Helper()
	readOnly, err := os.Open(l.file.path)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	good := l.file.f
	l.file.f = readOnly
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.file.f = good
		_ = readOnly.Close()
	}
}

// Events that cannot be written are in the program's log, counted, and a problem. A line counts
// them once the disk takes it, at the latest on Close.
func TestLost(t *testing.T) {
	t.Parallel()
	for name, atClose := range map[string]bool{"while it runs": false, "on close": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log testlog.Text
				registry := prometheus.NewRegistry()
				cfg := Config{
					Path: filepath.Join(t.TempDir(), "audit.jsonl"), Registerer: registry,
					Log: hclog.New(&hclog.LoggerOptions{Output: &log}),
				}
				l := open(t, cfg)
				mend := breakDisk(t, l)
				record(l, 0, 3)
				time.Sleep(5*syncInterval + syncInterval/2)
				if p := l.Problems(); len(p) != 1 || !strings.Contains(p[0],
					"3 events could not be written to "+l.file.path) {
					t.Errorf("problems %q", p)
				}
				got := counted(t, registry, "ashore_audit_lost_total")
				logged := strings.Count(log.String(), "audit event not written")
				if got != 3 || logged != 3 {
					t.Errorf("%v are counted, the program's log has:\n%s", got, log.String())
				}
				mend()
				if atClose {
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
					cfg.Registerer = nil
					wantTail(t, open(t, cfg), 10, "3")
					return
				}
				time.Sleep(2 * syncInterval)
				if p := l.Problems(); len(p) > 0 {
					t.Errorf("problems %q, want none", p)
				}
				record(l, 3, 4)
				wantTail(t, l, 10, "3", "3") // three are missing, and event 3
			})
		})
	}
}

// A log that was moved away or deleted begins again.
func TestReplaced(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(path string) error{
		"deleted":  os.Remove,
		"moved":    func(path string) error { return os.Rename(path, path+".moved") },
		"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t, Config{})
			record(l, 0, 2)
			if err := do(l.file.path); err != nil {
				t.Fatal(err)
			}
			record(l, 2, 4)
			wantTail(t, l, 10, "2", "3")
		})
	}
}

// Tail returns events once and in order while events are written and files are renamed.
func TestTailWhileWritten(t *testing.T) {
	t.Parallel()
	l := open(t, Config{MaxSize: 3000, Keep: 100, Log: hclog.NewNullLogger()})
	var wg sync.WaitGroup
	wg.Go(func() { record(l, 0, 1000) })
	for range 20 {
		events, err := l.Tail(50)
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i < len(events); i++ {
			before, errBefore := strconv.Atoi(events[i-1].Target)
			n, err := strconv.Atoi(events[i].Target)
			if err = errors.Join(err, errBefore); err != nil || n != before+1 {
				t.Fatalf("event %s follows %s (%v)", events[i].Target, events[i-1].Target, err)
			}
		}
	}
	wg.Wait()
}

func TestScrub(t *testing.T) {
	t.Parallel()
	s := newScrubber()
	for in, want := range map[string]string{
		"plain text":                              "plain text",
		"spiffe://cluster.local/ns/a/sa/b":        "spiffe://cluster.local/ns/a/sa/b",
		"token ashore-join.abc234.c2VjcmV0-_x":    "token ashore-join.abc234.(secret)",
		"ashore-replica.abc234.c2VjcmV0":          "ashore-replica.abc234.(secret)",
		"ashore-join.abc234":                      "ashore-join.abc234",
		"ashore-join.a.b.c, ashore-join.d.e!":     "ashore-join.a.(secret), ashore-join.d.(secret)!",
		"authorization: Bearer abc.def.ghi":       "authorization: Bearer (secret)",
		"bearer abcdef, eyJ.d":                    "bearer (secret), eyJ(secret)",
		"invalid bearer token, it has expired":    "invalid bearer token, it has expired",
		"jwt eyJhbGciOi.J9.x_y is old":            "jwt eyJ(secret) is old",
		"a -----BEGIN EC PRIVATE KEY-----\nMHc=":  "a (private key)",
		"-----BEGIN CERTIFICATE-----\nMIIB":       "-----BEGIN CERTIFICATE-----\nMIIB",
		"-----BEGIN PRIVATE KEY-----\nMHc=\n----": "(private key)",
	} {
		if got := s.scrub(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// The texts of an unknown caller are cut.
func TestBounds(t *testing.T) {
	t.Parallel()
	details := map[string]string{}
	for i := range 10 {
		details[fmt.Sprint(i)] = strings.Repeat("é", 10_000)
	}
	e := Event{Action: TokenRefuse, Target: strings.Repeat("x", 1<<20), Reason: "a\nb", Details: details}
	line, err := json.Marshal(newScrubber().clean(e, time.Now()))
	if err != nil || len(line) > 1<<17 || bytes.ContainsAny(line, "\n") {
		t.Errorf("a line of %d bytes, %v", len(line), err)
	}
}

// The secret of a token is hidden, whatever stands around it.
func FuzzScrub(f *testing.F) {
	f.Add("token ", " is used")
	f.Add("ashore-join.", ".")
	s := newScrubber()
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "S3cretS3cretS3cret"
		if strings.Contains(before+after, "S3cret") {
			t.Skip()
		}
		if got := s.scrub(before + " ashore-join.id." + secret + " " + after); strings.Contains(got, "S3cret") {
			t.Errorf("%q", got)
		}
	})
}
