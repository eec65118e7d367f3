package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// objects is how many one apply has in these tests: enough for it to take a while.
const objects = 2000

// first applies the first version, and returns how to wait for some moment of a later apply, near
// its end above all.
func (b *bench) first(seed uint64) (middle func()) {
	b.t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	path := b.file("all.yaml", many(objects, "10.0.0.1"))
	start := time.Now()
	b.want(0, "apply -f "+path, "revision 1")
	took := time.Since(start)
	return func() { time.Sleep(time.Duration(float64(took) * (0.2 + random.Float64()))) }
}

// whole checks that all objects are of one version, and returns its address.
func (b *bench) whole() string {
	b.t.Helper()
	got := b.addresses()
	for address, n := range got {
		if len(got) == 1 && n == objects {
			return address
		}
	}
	b.t.Fatalf("the store has %v, want all %d of one version", got, objects)
	return ""
}

// ashored is killed in the middle of an apply: all of it was written, or nothing, and what was
// confirmed stays.
func TestKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	middle := b.first(1)
	last := "10.0.0.1"
	outcomes := map[bool]int{}
	for i := range 8 {
		next := fmt.Sprintf("10.0.1.%d", i)
		r := b.startCtl("apply", "-f", b.file("all.yaml", many(objects, next)))
		middle()
		b.Ashored.Kill()
		code, out := r.end()
		b.Start()
		have := b.whole()
		switch {
		case code == 0 && have != next:
			t.Fatalf("it was confirmed and is gone: %s instead of %s", have, next)
		case have != next && have != last:
			t.Fatalf("the store has %s, want %s or %s", have, last, next)
		case code != 0 && !strings.Contains(out, "ashored"):
			t.Errorf("exit code %d:\n%s", code, out)
		}
		outcomes[have == next]++
		last = have
	}
	t.Logf("written %d times, not written %d times", outcomes[true], outcomes[false])
}

// ashorectl is interrupted during an apply: all or nothing was written, and the message says how to
// find out.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	middle := b.first(2)
	said := 0
	for i := range 8 {
		next := fmt.Sprintf("10.0.1.%d", i)
		r := b.startCtl("apply", "-f", b.file("all.yaml", many(objects, next)))
		middle()
		r.interrupt()
		code, out := r.end()
		if code == 1 && strings.Contains(out, "interrupted") && strings.Contains(out, "ashorectl history") {
			said++
		}
		if code == 0 && b.whole() != next {
			t.Fatalf("it was confirmed and is not there:\n%s", out)
		}
		harness.Eventually(t, "one version", func() error { b.whole(); return nil })
	}
	t.Logf("interrupted %d times while ashored was asked", said)
	if said == 0 {
		t.Error("it was never interrupted in the middle: the test proves nothing")
	}
}

// The disk is full in the middle: the message says what, where and what to do. Nothing is written
// in part, ashored continues, and with free space it works.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a small file system")
	}
	b := newBench(t, nil, harness.StateOn(func(dir string) {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m,mode=0700"); err != nil {
			t.Fatalf("mount: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Errorf("unmount: %v", err)
			}
		})
	}))
	b.want(0, "apply -f "+b.file("all.yaml", many(objects, "10.0.0.1")), "revision 1")
	fill := filepath.Join(b.State, "fill")
	if err := os.WriteFile(fill, make([]byte, 16<<20), 0o600); err == nil {
		t.Fatal("the disk is not full: the test proves nothing")
	}
	path := b.file("all.yaml", many(objects, "10.0.0.2"))
	b.want(1, "apply -f "+path, "no space left on device", "ashore.db", "nothing was changed", "make room")
	if got := b.whole(); got != "10.0.0.1" {
		t.Errorf("the store has %s", got)
	}
	b.want(0, "history", "REVISION", "created: ServiceEntry") // it still answers
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	b.want(0, "apply -f "+path, "revision 2")
	if got := b.whole(); got != "10.0.0.2" {
		t.Errorf("the store has %s", got)
	}
	b.Audited("config.write", "store revision 2")
}

// Writers at the same time: each apply is whole, and of those that write at one revision one alone
// does.
func TestTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.want(0, "apply -f "+b.file("all.yaml", many(200, "10.0.0.1")), "revision 1")
	var at []*running
	for i := range 4 {
		path := b.file(fmt.Sprintf("%d.yaml", i), many(200, fmt.Sprintf("10.0.1.%d", i)))
		at = append(at, b.startCtl("apply", "--at", "1", "-f", path))
	}
	done := 0
	for _, r := range at {
		code, out := r.end()
		switch {
		case code == 0:
			done++
		case !strings.Contains(out, "ServiceEntry default/s0 was changed at revision 2") &&
			!strings.Contains(out, "Try again"):
			t.Errorf("exit code %d:\n%.1000s", code, out)
		}
	}
	if got := b.addresses(); done != 1 || len(got) != 1 {
		t.Errorf("%d wrote at revision 1, and the store has %v; want one, whole", done, got)
	}
}
