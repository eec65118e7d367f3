package bolt

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/record"
)

// writeForEver does write after write and prints the number of each. Write n sets two objects and
// two records to n. It continues where the last process stopped.
func writeForEver(dir string) error {
	s, err := New(Config{Dir: dir})
	if err != nil {
		return err
	}
	ctx := context.Background()
	for n := lastWrite(s) + 1; ; n++ {
		o, value := configtest.Object, fmt.Append(nil, n)
		host := fmt.Sprintf("%d.test", n)
		if _, err := s.Apply(ctx, []config.Change{
			{Key: configtest.Key("a"), Object: o("a", host)}, {Key: configtest.Key("b"), Object: o("b", host)},
		}, "child"); err != nil {
			return err
		}
		if err := s.Records().Commit(ctx, record.Write{Key: token("a"), Value: value, Version: record.Any},
			record.Write{Key: token("b"), Value: value, Version: record.Any}); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// lastWrite returns the number of the last write of objects, 0 before the first; -1 if it was torn.
func lastWrite(s *Store) int {
	number := func(name string) (n int) {
		if o, err := s.Get(context.Background(), configtest.Key(name)); err == nil {
			_, _ = fmt.Sscanf(o.Spec.(interface{ GetHosts() []string }).GetHosts()[0], "%d.test", &n)
		}
		return n
	}
	if number("a") != number("b") {
		return -1
	}
	return number("a")
}

// No acknowledged write is lost, and none is torn, when the process is killed at any moment. It runs
// alone: a process that is being started has the locks of all stores for a moment, and tests in virtual
// time do not wait for that.
func TestKilled(t *testing.T) {
	const kills = 20
	dir, acknowledged := t.TempDir(), 0
	for range kills {
		acknowledged = writeAndKill(t, dir, acknowledged)
		if err := Check(filepath.Join(dir, FileName)); err != nil {
			t.Fatal(err)
		}
		s := open(t, Config{Dir: dir})
		last := lastWrite(s)
		if last != acknowledged && last != acknowledged+1 {
			t.Fatalf("the objects are of write %d, and %d was acknowledged", last, acknowledged)
		}
		list, err := s.Records().List(t.Context(), "token")
		if err != nil || len(list) != 2 || string(list[0].Value) != string(list[1].Value) ||
			string(list[0].Value) != fmt.Sprint(acknowledged) && string(list[0].Value) != fmt.Sprint(acknowledged+1) {
			t.Fatalf("after write %d the records are %v, %v", acknowledged, list, err)
		}
		acknowledged = last
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d writes", acknowledged)
}

// writeAndKill kills a writer at some moment and returns the last write that it acknowledged.
func writeAndKill(t *testing.T, dir string, last int) int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "child-write", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var timer *time.Timer
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, err := fmt.Sscan(lines.Text(), &last); err != nil {
			t.Errorf("the writer printed %q", lines.Text())
		}
		if timer == nil {
			timer = time.AfterFunc(time.Duration(rand.IntN(15_000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		}
	}
	if err := cmd.Wait(); err == nil || timer == nil {
		t.Fatalf("the writer ended by itself: %v", err)
	}
	return last
}
