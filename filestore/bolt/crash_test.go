package bolt

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/record"
)

// childWrite writes to the store of dir, so many times, and says what was acknowledged, one number a line. Write n
// sets objects n%5 and "last" to n, in one Apply, and then two records to n.
func childWrite(dir string, writes int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s, err := New(Config{Dir: dir, CheckCommand: []string{self, "child-check"}})
	if err != nil {
		return err
	}
	first := lastOf(s) + 1
	for n := first; n < first+writes; n++ {
		host := fmt.Sprintf("n%d.test", n)
		changes := []config.Change{{Key: configtest.Key("last"), Object: configtest.Object("last", host)}}
		name := fmt.Sprintf("o%d", n%5)
		changes = append(changes, config.Change{Key: configtest.Key(name), Object: configtest.Object(name, host)})
		if _, err := s.Apply(context.Background(), changes, "child"); err != nil {
			return err
		}
		value := fmt.Append(nil, n)
		if err := s.Records().Commit(context.Background(), record.Write{Key: token("a"), Value: value, Version: record.Any},
			record.Write{Key: token("z"), Value: value, Version: record.Any}); err != nil {
			return err
		}
		fmt.Println(n)
	}
	return s.Close()
}

// lastOf is the number of the last write that a store holds.
func lastOf(s *Store) int {
	o, err := s.Get(context.Background(), configtest.Key("last"))
	if err != nil {
		return 0
	}
	return numberOf(o)
}

func numberOf(o *config.Object) int {
	var n int
	host := o.Spec.(interface{ GetHosts() []string }).GetHosts()[0]
	if _, err := fmt.Sscanf(host, "n%d.test", &n); err != nil {
		return -1
	}
	return n
}

// checkWrites checks that a store holds what was acknowledged, and nothing in halves.
func checkWrites(t *testing.T, s *Store, acknowledged int) {
	t.Helper()
	last := lastOf(s)
	if last != acknowledged && last != acknowledged+1 {
		t.Fatalf("the store is at write %d, and %d was acknowledged", last, acknowledged)
	}
	for n := max(1, last-4); n <= last; n++ {
		o, err := s.Get(t.Context(), configtest.Key(fmt.Sprintf("o%d", n%5)))
		if err != nil || numberOf(o) != n {
			t.Fatalf("object of write %d of %d: %v, %v", n, last, o, err)
		}
	}
	list, err := s.Records().List(t.Context(), "token")
	if err != nil || len(list)%2 != 0 || len(list) == 0 && acknowledged > 0 {
		t.Fatalf("records of write %d: %v, %v", acknowledged, list, err)
	}
	for _, r := range list {
		if v := string(r.Value); v != string(list[0].Value) || v != fmt.Sprint(acknowledged) && v != fmt.Sprint(acknowledged+1) {
			t.Fatalf("after write %d records are %v", acknowledged, list)
		}
	}
}

// times is how often a test tries something that takes a child process: often, or where that is slow or not
// wanted, few times.
func times(often, few int) int {
	if testing.Short() || raceEnabled {
		return few
	}
	return often
}

// No acknowledged write is lost when the process is killed at any moment.
func TestKilled(t *testing.T) {
	t.Parallel()
	kills := times(200, 30)
	dir := t.TempDir()
	acknowledged := 0
	for kill := range kills {
		acknowledged = writeAndKill(t, dir, acknowledged)
		if kill%10 != 0 && kill < kills-10 {
			continue // the child itself opens and checks the store
		}
		s := open(t, checked(t, dir))
		checkWrites(t, s, acknowledged)
		acknowledged = lastOf(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d writes were acknowledged", acknowledged)
	if acknowledged < kills {
		t.Errorf("only %d writes over %d kills: the test proves little", acknowledged, kills)
	}
}

// writeAndKill runs a writer, kills it at some moment, and returns the last number that it said.
func writeAndKill(t *testing.T, dir string, before int) int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "child-write", dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last, lines := before, bufio.NewScanner(out)
	kill := func() {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
	}
	var timer *time.Timer
	for lines.Scan() {
		var n int
		if _, err := fmt.Sscan(lines.Text(), &n); err != nil || n != last+1 && n != last+2 {
			t.Fatalf("after %d the writer said %q", last, lines.Text())
		}
		last = n
		if timer == nil { // from the first write on, at any moment
			timer = time.AfterFunc(time.Duration(rand.IntN(15_000))*time.Microsecond, kill)
		}
	}
	if timer == nil {
		kill()
	}
	if err := cmd.Wait(); err == nil || stderr.Len() > 0 {
		t.Fatalf("the writer ended by itself: %v %s", err, &stderr)
	}
	return last
}

// A damaged file is recognised, or read right; it never takes this process down, and is never written to.
func TestDamaged(t *testing.T) {
	t.Parallel()
	damages := times(200, 40)
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	for n := range 40 {
		if _, err := s.Put(t.Context(), configtest.Object(fmt.Sprintf("o%d", n), fmt.Sprintf("n%d.test", n)), "x"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	good := read(t, s.path)
	random := rand.New(rand.NewPCG(1, 2))
	recognised := 0
	for n := range damages {
		bad, how := damage(good, random, n)
		place := filepath.Join(t.TempDir(), FileName)
		if err := os.WriteFile(place, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := checked(t, filepath.Dir(place))
		cfg.CheckTimeout = 10 * time.Second
		d, err := New(cfg)
		if err != nil {
			recognised++
			if !errors.Is(err, ErrDamaged) || string(read(t, place)) != string(bad) {
				t.Errorf("%s: got %v; want ErrDamaged and a file that is not touched", how, err)
			}
			continue
		}
		for n := range 40 {
			o, err := d.Get(t.Context(), configtest.Key(fmt.Sprintf("o%d", n)))
			if err != nil || numberOf(o) != n {
				t.Fatalf("%s: the damage was not recognised: %v, %v", how, o, err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d damages were recognised, the others were where nothing is", recognised, damages)
	if recognised < damages/10 {
		t.Errorf("only %d of %d damages were recognised: the test proves little", recognised, damages)
	}
}

// What bbolt itself does not notice is recognised: a record that is lost, changed or moved, and the loss of the
// last write.
func TestSilentDamage(t *testing.T) {
	t.Parallel()
	a, b := objectKey(configtest.Key("a")), objectKey(configtest.Key("b"))
	edit := func(f func(*bbolt.Bucket) error) func(string) error {
		return func(path string) error {
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				return err
			}
			err = db.Update(func(tx *bbolt.Tx) error { return f(tx.Bucket([]byte(bucketObjects))) })
			return errors.Join(err, db.Close())
		}
	}
	for name, c := range map[string]struct {
		do   func(path string) error
		want string
	}{
		"a lost record": {edit(func(o *bbolt.Bucket) error { return o.Delete(a) }), "records are missing"},
		"a changed record": {edit(func(o *bbolt.Bucket) error {
			v := append([]byte(nil), o.Get(a)...)
			v[len(v)-1] ^= 1
			return o.Put(a, v)
		}), "checksum of record"},
		"a moved record":  {edit(func(o *bbolt.Bucket) error { return o.Put(b, o.Get(a)) }), "checksum of record"},
		"the first page":  {func(path string) error { return flip(path, pageHeader+metaTx) }, "first page: the checksum is wrong"},
		"a size":          {oversize, "its content lies beyond the page's end"},
		"the second page": {func(path string) error { return flip(path, 4096+pageHeader+metaTx) }, "second page: the checksum is wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, Config{Dir: dir})
			for _, name := range []string{"a", "b"} {
				if _, err := s.Put(t.Context(), configtest.Object(name, name+".test"), "x"); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(s.Close(), c.do(s.path)); err != nil {
				t.Fatal(err)
			}
			if _, err := New(checked(t, dir)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want ErrDamaged with %q", err, c.want)
			}
		})
	}
}

// oversize makes the first bucket larger than the file, which bbolt itself does not notice where memory follows.
func oversize(path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	meta, err := newerMeta(f)
	if err != nil {
		return err
	}
	page := binary.NativeEndian.Uint64(meta[metaRoot:]) * uint64(binary.NativeEndian.Uint32(meta[metaPageSize:]))
	_, err = f.WriteAt(binary.NativeEndian.AppendUint32(nil, 0xd0010), int64(page)+pageHeader+12)
	return err
}

// flip changes one byte of a file.
func flip(path string, at int64) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[at] ^= 1
	return os.WriteFile(path, b, 0o600)
}

// damage returns a damaged copy of good, and says how.
func damage(good []byte, random *rand.Rand, n int) ([]byte, string) {
	bad := append([]byte(nil), good...)
	at := random.IntN(len(bad))
	switch n % 4 {
	case 0:
		bit := random.IntN(8)
		bad[at] ^= 1 << bit
		return bad, fmt.Sprintf("bit %d of byte %d", bit, at)
	case 1: // the head of a page, where it hurts most
		at = at/4096*4096 + random.IntN(128)
		bad[at] ^= byte(1 + random.IntN(255))
		return bad, fmt.Sprintf("byte %d", at)
	case 2:
		return bad[:at], fmt.Sprintf("cut off at %d", at)
	default:
		from, to := at/4096*4096, random.IntN(len(bad))/4096*4096
		copy(bad[to:to+4096], good[from:from+4096])
		return bad, fmt.Sprintf("the page at %d also at %d", from, to)
	}
}
