package audit

import (
	"bytes"
	"context"
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

// open opens a log that is closed with the test.
func open(t *testing.T, c Config) *Log {
	t.Helper()
	if c.Path == "" {
		c.Path = filepath.Join(t.TempDir(), "state", "audit.jsonl")
	}
	if c.Log == nil {
		c.Log = testlog.New(t)
	}
	l, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

// value is what a counter counted.
func value(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("got %v, %v", families, err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

// start runs a log until the test ends, or what it returns is called.
func start(t *testing.T, l *Log) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	for running := false; !running; {
		l.mu.Lock()
		running = l.running
		l.mu.Unlock()
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// targets are the targets of the latest n events.
func targets(t *testing.T, l *Log, n int) []string {
	t.Helper()
	var out []string
	err := l.Tail(t.Context(), n, false, func(e Event) error { out = append(out, e.Target); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func numbers(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// What is recorded is a line of JSON with a time and an outcome when Record returns, in a file of one's own.
func TestRecord(t *testing.T) {
	t.Parallel()
	l := open(t, Config{})
	l.Record(Event{Action: CALoad, Target: "before"})
	stop := start(t, l)
	at := time.Date(2026, 8, 1, 12, 0, 0, 0, time.FixedZone("X", 7200))
	want := Event{Time: at.UTC(), Action: TokenRefuse, Actor: "10.0.0.9", Target: "abc", Outcome: Refused, Reason: "used", Details: map[string]string{"group": "shop/web"}}
	l.Record(Event{Time: at, Action: want.Action, Actor: want.Actor, Target: want.Target, Outcome: Refused, Reason: want.Reason, Details: want.Details})
	b, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	var got Event
	if err := json.Unmarshal(lines[len(lines)-1], &got); err != nil || len(lines) != 2 {
		t.Fatalf("%d lines, %v:\n%s", len(lines), err, b)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	stop()
	l.Record(Event{Action: CALoad, Target: "after"})
	var all []Event
	if err := l.Tail(t.Context(), 10, false, func(e Event) error { all = append(all, e); return nil }); err != nil || len(all) != 3 {
		t.Fatalf("got %v, %v", all, err)
	}
	if all[0].Time.IsZero() || all[0].Outcome != OK {
		t.Errorf("got %+v, want a time and ok", all[0])
	}
	if info, err := os.Stat(l.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want mode 0600", info.Mode(), err)
	}
}

// No line is lost or torn by those that are written at the same time.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	l := open(t, Config{Registerer: reg, MaxSize: 4 << 10, Keep: 100})
	start(t, l)
	const writers, each = 16, 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				l.Record(Event{Action: TokenUse, Target: fmt.Sprintf("%d/%d", w, i)})
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, target := range targets(t, l, 2*writers*each) {
		seen[target] = true
	}
	if len(seen) != writers*each {
		t.Errorf("%d of %d events are there", len(seen), writers*each)
	}
	if got := value(t, l.events); got != writers*each {
		t.Errorf("%v events are counted", got)
	}
}

// A full file is renamed, and only so many are kept; reading goes back over them.
func TestRotate(t *testing.T) {
	t.Parallel()
	l := open(t, Config{MaxSize: 300, Keep: 2})
	for i := range 40 {
		l.Record(Event{Action: TokenUse, Target: fmt.Sprint(i)})
	}
	names, err := filepath.Glob(l.path + "*")
	if err != nil || len(names) != 3 {
		t.Fatalf("files %v, %v; want three", names, err)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.Size() > 300 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if d := cmp.Diff(numbers(37, 40), targets(t, l, 3)); d != "" {
		t.Errorf("the latest 3 (-want +got):\n%s", d)
	}
	all := targets(t, l, 100)
	if d := cmp.Diff(numbers(40-len(all), 40), all); d != "" || len(all) < 4 {
		t.Errorf("all that there are (-want +got):\n%s", d)
	}
}

// A file that cannot be renamed goes on being used.
func TestRotateImpossible(t *testing.T) {
	t.Parallel()
	l := open(t, Config{MaxSize: 300, Keep: 1})
	if err := os.MkdirAll(filepath.Join(l.path+".1", "occupied"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		l.Record(Event{Action: TokenUse, Target: fmt.Sprint(i)})
	}
	var out []string
	r := &reader{file: l.file}
	var err error
	if r.f, err = os.Open(l.path); err != nil {
		t.Fatal(err)
	}
	defer r.f.Close()
	if err := r.lines(func(e Event) error { out = append(out, e.Target); return nil }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(numbers(0, 10), out); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A line that a loss of power tore is closed, and passed over by readers.
func TestTorn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, Config{Path: path})
	l.Record(Event{Action: TokenUse, Target: "0"})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range whole {
		if err := os.WriteFile(path, append(bytes.Clone(whole), whole[:cut]...), 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, Config{Path: path, Log: hclog.NewNullLogger()})
		l.Record(Event{Action: TokenUse, Target: "1"})
		if d := cmp.Diff([]string{"0", "1"}, dropRepeated(targets(t, l, 10))); d != "" {
			t.Fatalf("cut at %d (-want +got):\n%s", cut, d)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// dropRepeated removes what is equal to the one before: a torn line that only lacks its end is whole.
func dropRepeated(in []string) []string {
	var out []string
	for i, s := range in {
		if i == 0 || in[i-1] != s {
			out = append(out, s)
		}
	}
	return out
}

// What cannot be written goes to the program's log and is counted, its caller goes on, and a later line tells of it.
func TestLost(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	l := open(t, Config{Log: hclog.New(&hclog.LoggerOptions{Output: &said})})
	good := l.file.f
	bad, err := os.Open(l.path) // for reading only
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	l.file.f = bad
	for i := range 3 {
		l.Record(Event{Action: TokenUse, Actor: "somebody", Target: fmt.Sprintf("lost-%d", i)})
	}
	l.file.f = good
	if got := value(t, l.lost); got != 3 || !strings.Contains(said.String(), "lost-2") || !strings.Contains(said.String(), "somebody") {
		t.Errorf("%v counted as lost, the program's log has:\n%s", got, &said)
	}
	l.Record(Event{Action: TokenUse, Target: "there"})
	l.Record(Event{Action: TokenUse, Target: "again"})
	var got []Event
	if err := l.Tail(t.Context(), 10, false, func(e Event) error { got = append(got, e); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0].Action != Gap || got[0].Details["missing"] != "3" || got[1].Target != "there" {
		t.Errorf("got %+v, want one line about three lost ones", got)
	}
}

// fill makes a log's disk take nothing until what it returns is called, without an event being written meanwhile.
func fill(t *testing.T, l *Log) (room func()) {
	t.Helper()
	bad, err := os.Open(l.path) // for reading only
	if err != nil {
		t.Fatal(err)
	}
	l.writing.Lock()
	good := l.file.f
	l.file.f = bad
	l.writing.Unlock()
	return func() {
		l.writing.Lock()
		defer l.writing.Unlock()
		l.file.f = good
		if err := bad.Close(); err != nil {
			t.Error(err)
		}
	}
}

// gaps are how many events each line of a file says to be missing.
func gaps(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		var e Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Action == Gap {
			out = append(out, e.Details["missing"])
		}
	}
	return out
}

// The line about what is missing waits for no other event: it is there within a second of when there is room, once.
func TestGapByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Config{})
		stop := start(t, l)
		room := fill(t, l)
		for range 3 {
			l.Record(Event{Action: TokenUse, Target: "lost"})
		}
		time.Sleep(10*time.Second + syncTime/2) // between two tries
		if got := gaps(t, l.path); len(got) != 0 {
			t.Errorf("%v missing by a file that takes nothing", got)
		}
		room()
		time.Sleep(2 * syncTime)
		if d := cmp.Diff([]string{"3"}, gaps(t, l.path)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		time.Sleep(10 * time.Second)
		l.Record(Event{Action: TokenUse, Target: "there"})
		stop()
		if d := cmp.Diff([]string{"3"}, gaps(t, l.path)); d != "" {
			t.Errorf("it is told again (-want +got):\n%s", d)
		}
	})
}

// A log that is told to end says first what is missing, whoever of Run and Close comes to find room.
func TestGapAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, roomFirst := range map[string]bool{"run": true, "close": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := open(t, Config{})
				stop := start(t, l)
				room := fill(t, l)
				l.Record(Event{Action: TokenUse, Target: "lost"})
				if roomFirst {
					room()
					stop()
				} else {
					stop()
					room()
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
				}
				if d := cmp.Diff([]string{"1"}, gaps(t, l.path)); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			})
		})
	}
}

// Where there is no room until the end, the program's log says that the file does not tell.
func TestGapUntold(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	l := open(t, Config{Log: hclog.New(&hclog.LoggerOptions{Output: &said})})
	good := l.file.f
	defer good.Close()
	fill(t, l)
	l.Record(Event{Action: TokenUse, Target: "lost"})
	_ = l.Close() // what cannot be written may not be to sync either
	if !strings.Contains(said.String(), "before it could say that events are missing in it") || !strings.Contains(said.String(), "missing=1") {
		t.Errorf("the program's log has:\n%s", &said)
	}
}

// No file is renamed for the line about what is missing: a try every second must not drive the older ones out.
func TestGapRenamesNothing(t *testing.T) {
	t.Parallel()
	l := open(t, Config{MaxSize: 1})
	l.Record(Event{Action: TokenUse, Target: "0"})
	room := fill(t, l)
	l.lose(Event{Action: TokenUse}, os.ErrClosed)
	for range 20 {
		l.drain()
	}
	room()
	l.drain()
	if d := cmp.Diff([]string{"1"}, gaps(t, l.path)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if _, err := os.Stat(l.path + ".1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a renamed file: %v", err)
	}
}

// A disk that took a part of a line gets it whole later, and no line is spoilt.
func TestPartlyWritten(t *testing.T) {
	t.Parallel()
	l := open(t, Config{})
	l.Record(Event{Action: TokenUse, Target: "0"})
	if _, err := l.file.f.WriteString(`{"time":"2026-`); err != nil {
		t.Fatal(err)
	}
	l.file.torn = true
	l.Record(Event{Action: TokenUse, Target: "1"})
	if d := cmp.Diff([]string{"0", "1"}, targets(t, l, 10)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A disk that hangs holds nobody up; once it goes on, what waited is written.
func TestHangs(t *testing.T) {
	t.Parallel()
	l := open(t, Config{})
	start(t, l)
	l.writing.Lock() // as a write that does not return
	for i := range maxQueue + 10 {
		l.Record(Event{Action: TokenUse, Target: fmt.Sprint(i)})
	}
	if got := value(t, l.lost); got != 10 {
		t.Errorf("%v lost, want those beyond the queue", got)
	}
	l.writing.Unlock()
	l.drain()
	l.Record(Event{Action: TokenUse, Target: "last"})
	if got := targets(t, l, 1); len(got) != 1 || got[0] != "last" {
		t.Errorf("got %v", got)
	}
	if got := len(targets(t, l, 2*maxQueue)); got != maxQueue+2 {
		t.Errorf("%d events, want all of the queue, one about the others, and the last", got)
	}
}

// Following goes on over rotations, and ends with its context.
func TestFollow(t *testing.T) {
	t.Parallel()
	l := open(t, Config{MaxSize: 1000, Keep: 3})
	for i := range 5 {
		l.Record(Event{Action: TokenUse, Target: fmt.Sprint(i)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan string, 1)
	done := make(chan error, 1)
	go func() {
		done <- l.Tail(ctx, 2, true, func(e Event) error { seen <- e.Target; return nil })
	}()
	for i := 3; i < 60; i++ {
		if i >= 5 {
			l.Record(Event{Action: TokenUse, Target: fmt.Sprint(i)})
		}
		if got := <-seen; got != fmt.Sprint(i) {
			t.Fatalf("got %s, want %d", got, i)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(l.watchers.all) != 0 {
		t.Error("who left is still told")
	}
}

// Who follows sees every event once and in order, however often the file is renamed meanwhile, and however slow he is.
func TestFollowRotations(t *testing.T) {
	t.Parallel()
	const events = 300
	l := open(t, Config{MaxSize: 300, Keep: 200, Log: hclog.NewNullLogger()})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun, done := make(chan struct{}), make(chan error, 1)
	next := -1
	go func() {
		done <- l.Tail(ctx, 1, true, func(e Event) error {
			if e.Target != fmt.Sprint(next) {
				return fmt.Errorf("got %s, want %d", e.Target, next)
			}
			switch next++; next {
			case 0:
				close(begun)
			case events:
				cancel()
			}
			return nil
		})
	}()
	l.Record(Event{Action: TokenUse, Target: "-1"})
	select {
	case <-begun:
	case err := <-done:
		t.Fatal(err)
	}
	for i := range events {
		l.Record(Event{Action: TokenUse, Target: fmt.Sprint(i)})
	}
	if err := <-done; err != nil || next != events {
		t.Errorf("%v after %d events", err, next)
	}
}

// The latest events are found while files are renamed.
func TestTailRotations(t *testing.T) {
	t.Parallel()
	l := open(t, Config{MaxSize: 300, Keep: 100, Log: hclog.NewNullLogger()})
	for i := range 20 {
		l.Record(Event{Action: TokenUse, Target: fmt.Sprint(i)})
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 20; ; i++ {
			select {
			case <-stop:
				return
			default:
				l.Record(Event{Action: TokenUse, Target: fmt.Sprint(i)})
			}
		}
	}()
	for range 200 {
		if got := targets(t, l, 8); len(got) != 8 || got[7] != numbers(atoi(t, got[0]), atoi(t, got[0])+8)[7] {
			t.Errorf("got %v, want 8 in a row", got)
		}
	}
	close(stop)
	<-done
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// An error of who reads ends reading.
func TestTailError(t *testing.T) {
	t.Parallel()
	l := open(t, Config{})
	l.Record(Event{Action: TokenUse})
	want := errors.New("gone")
	if err := l.Tail(t.Context(), 1, true, func(Event) error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

// What is no file of one's own is not written to.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, dir, "/dev/null", ""} {
		if l, err := Open(Config{Path: path}); err == nil {
			t.Errorf("%q was opened", path)
			_ = l.Close()
		} else if path != "" && !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v does not name it", path, err)
		}
	}
	if err := os.Chmod(target, 0o644); err != nil {
		t.Fatal(err)
	}
	open(t, Config{Path: target})
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want that others are shut out", info.Mode(), err)
	}
}

func TestScrub(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain text":                           "plain text",
		"spiffe://cluster.local/ns/a/sa/b":     "spiffe://cluster.local/ns/a/sa/b",
		"token ashore-join.abc234.c2VjcmV0-_x": "token ashore-join.abc234.(secret)",
		"ashore-join.abc234":                   "ashore-join.abc234",
		"ashore-join.a.b.c, ashore-join.d.e!":  "ashore-join.a.(secret), ashore-join.d.(secret)!",
		"authorization: Bearer abc.def.ghi":    "authorization: Bearer (secret)",
		"jwt eyJhbGciOi.J9.x_y is old":         "jwt eyJ(secret) is old",
		"-----BEGIN EC PRIVATE KEY-----\nMHc=": "(private key)",
	} {
		if got := scrub(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// What an unknown caller sends cannot make lines grow.
func TestBounds(t *testing.T) {
	t.Parallel()
	details := map[string]string{}
	for i := range 1000 {
		details[fmt.Sprint(i)] = strings.Repeat("é", 10_000)
	}
	e := Event{Action: TokenRefuse, Target: strings.Repeat("x", 1<<20), Reason: "a\nb", Details: details}.clean(time.Now())
	line, err := json.Marshal(e)
	if err != nil || len(line) > maxLine/2 || bytes.ContainsAny(line, "\n") {
		t.Errorf("a line of %d bytes, %v", len(line), err)
	}
}

// No secret of a token survives, whatever stands around it.
func FuzzScrub(f *testing.F) {
	f.Add("token ", " is used")
	f.Add("ashore-join.", ".")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "S3cretS3cretS3cret"
		if strings.Contains(before+after, "S3cret") || strings.HasSuffix(before, "ashore-join") {
			t.Skip()
		}
		if got := scrub(before + " ashore-join.id." + secret + " " + after); strings.Contains(got, "S3cret") {
			t.Errorf("%q", got)
		}
	})
}

// A file that was moved away or deleted is begun anew within a second, with a line that says so, and what is recorded can be
// found; who follows hears all of it once.
func TestFileGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gone func(l *Log) error
		want []string
	}{
		"deleted":           {func(l *Log) error { return os.Remove(l.path) }, []string{"before", "deleted", "after"}},
		"moved":             {func(l *Log) error { return os.Rename(l.path, l.path+".moved") }, []string{"before", "moved away", "after"}},
		"another in place":  {func(l *Log) error { return errors.Join(os.Remove(l.path), os.WriteFile(l.path, nil, 0o600)) }, []string{"before", "deleted", "after"}},
		"without a folder":  {func(l *Log) error { return os.RemoveAll(filepath.Dir(l.path)) }, nil},
		"moved with folder": {func(l *Log) error { return os.Rename(filepath.Dir(l.path), filepath.Dir(l.path)+"2") }, []string{"before", "after"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := open(t, Config{})
				start(t, l)
				l.Record(Event{Action: TokenUse, Target: "before"})
				heard := make(chan Event, 10)
				ctx, cancel := context.WithCancel(t.Context())
				followed := make(chan error, 1)
				go func() { followed <- l.Tail(ctx, 10, true, func(e Event) error { heard <- e; return nil }) }()
				synctest.Wait()
				if err := c.gone(l); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * syncTime)
				l.Record(Event{Action: TokenUse, Target: "after"})
				synctest.Wait()
				cancel()
				if err := <-followed; err != nil {
					t.Error(err)
				}
				if c.want == nil {
					if p := l.Problems(); len(p) != 1 || value(t, l.lost) != 1 {
						t.Errorf("problems %v, want one about a lost event", p)
					}
					return
				}
				close(heard)
				var got []string
				for e := range heard {
					got = append(got, e.Target+e.Reason)
				}
				if len(got) != len(c.want) {
					t.Fatalf("who follows heard %q, want %q", got, c.want)
				}
				for i, want := range c.want {
					if !strings.Contains(got[i], want) {
						t.Errorf("who follows heard %q, want %q", got, c.want)
					}
				}
			})
		})
	}
}
