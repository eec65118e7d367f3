package filestore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A folder that was waited for counts as read some time, also where the names of its files change again and again.
func TestAwaitNamesChange(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(from, to string) error{
		"a file is renamed": os.Rename,
		"a file is written anew under another name": func(from, to string) error {
			content, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			if err := os.WriteFile(to, content, 0o644); err != nil {
				return err
			}
			return os.Remove(from)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folderOf(t, nil)
			w := begin(t, Config{Dir: dir, Await: true, Rescan: 20 * time.Millisecond, Return: 200 * time.Millisecond})
			w.waits(dir)
			at := func(i int) string { return filepath.Join(dir, fmt.Sprintf("n%d.yaml", i)) }
			put(t, dir, "n0.yaml", entry("a", "10.0.0.1"))
			for !strings.Contains(w.state(), "a=") {
				w.next()
			}
			for i := 0; len(w.merger.Unseen()) > 0; i++ {
				w.during(50 * time.Millisecond)
				if err := change(at(i), at(i+1)); err != nil {
					t.Fatal(err)
				}
				if i == 200 { // five times as many as it may take
					t.Fatalf("it never counts as read; problems %v", w.problems())
				}
			}
			w.want("a=10.0.0.1") // under its last name alone
		})
	}
}

// What was deleted before a start goes some time, also where files with new names come more often than Return, as where a job writes
// dated ones; and what is deleted meanwhile goes with it.
func TestDeletedWhileNamesCome(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1"), "b.yaml": entry("b", "10.0.0.1"), "c.yaml": entry("c", "10.0.0.1")})
	kept := &memory{kept: map[string][]byte{}}
	run(t, Config{Dir: dir, LastGood: kept}).stop()
	remove(t, dir, "a.yaml")
	w := run(t, Config{Dir: dir, LastGood: kept, Return: 200 * time.Millisecond, Rescan: 20 * time.Millisecond})
	w.want("a=10.0.0.1 b=10.0.0.1 c=10.0.0.1", "not all of its files are back")
	remove(t, dir, "c.yaml")
	for i := 0; w.state() != "b=10.0.0.1"; i++ {
		put(t, dir, fmt.Sprintf("n%d.yaml", i), fmt.Sprintf("# %d\n", i))
		w.during(50 * time.Millisecond)
		if i >= 3 {
			remove(t, dir, fmt.Sprintf("n%d.yaml", i-3))
		}
		if i == 200 { // five times as many as it may take
			t.Fatalf("in use is still %s; problems %v", w.state(), w.problems())
		}
	}
}

// At each scan of a folder that was waited for, or lacks files: whether it does not count as read yet, and whether files that are lost stay.
// Other files that come and come do not keep them: where none of those that are missing comes back, it is over some time.
func TestAbsenceSteps(t *testing.T) {
	t.Parallel()
	const back = 5 * time.Second
	as := func(inode uint64) stamp { return stamp{size: 1, device: 1, inode: inode} }
	type step struct {
		at          time.Duration
		there, lost []string // what is there has a second letter, for which file it is
		first, held bool
	}
	for name, steps := range map[string][]step{
		"left alone": {
			{0, []string{"a1"}, nil, true, true},
			{back, []string{"a1"}, nil, false, false},
		},
		"another file comes": {
			{0, []string{"a1"}, nil, true, true},
			{4 * time.Second, []string{"a1", "b2"}, nil, true, true},
			{back, []string{"a1", "b2"}, nil, true, true},
			{4*time.Second + back, []string{"a1", "b2"}, nil, false, false},
		},
		"a file is renamed, twice": {
			{0, []string{"a1"}, nil, true, true},
			{2 * time.Second, []string{"b1"}, []string{"a"}, true, true},
			{4 * time.Second, []string{"c1"}, []string{"a", "b"}, true, true},
			{back, []string{"c1"}, []string{"a", "b"}, false, false},
		},
		"a link to one that is there": {
			{0, []string{"a1"}, nil, true, true},
			{4 * time.Second, []string{"a1", "b1"}, nil, true, true},
			{back, []string{"a1", "b1"}, nil, true, true},
		},
		"others come and come": {
			{0, []string{"a1"}, nil, true, true},
			{9*back + 1, []string{"b2"}, []string{"a"}, true, true},
			{10*back - 1, []string{"c3"}, []string{"a", "b"}, true, true},
			{10 * back, []string{"d4"}, []string{"a", "b", "c"}, false, false},
		},
		"it was empty meanwhile": {
			{0, []string{"a1"}, nil, true, true},
			{back - 1, nil, []string{"a"}, true, true},
			{back, []string{"b2"}, []string{"a"}, true, true},
			{10 * back, []string{"c3"}, []string{"a", "b"}, true, true},
			{11*back - 1, []string{"c3"}, []string{"a", "b"}, true, true},
			{11 * back, []string{"d4"}, []string{"a", "b", "c"}, false, false},
		},
		"some are missing at a start": {
			{0, []string{"a1"}, []string{"b", "c"}, false, true},
			{back - 1, []string{"a1"}, []string{"b", "c"}, false, true},
			{back, []string{"a1"}, []string{"b", "c"}, false, false},
		},
		"some are missing, and others come and come": {
			{0, []string{"a1"}, []string{"z"}, false, true},
			{9*back + 1, []string{"b2"}, []string{"a", "z"}, false, true},
			{10*back - 1, []string{"c3"}, []string{"a", "b", "z"}, false, true},
			{10 * back, []string{"d4"}, []string{"a", "b", "c", "z"}, false, false},
			{10*back + 1, []string{"e5"}, []string{"a", "b", "c", "d", "z"}, false, false},
		},
		"it was empty, and others come and come": {
			{0, nil, []string{"y", "z"}, false, true},
			{20 * back, nil, []string{"y", "z"}, false, true},
			{21 * back, []string{"a1"}, []string{"y", "z"}, false, true},
			{31*back - 1, []string{"b2"}, []string{"a", "y", "z"}, false, true},
			{31 * back, []string{"c3"}, []string{"a", "b", "y", "z"}, false, false},
		},
		"they come back slowly, among others": {
			{0, []string{"a1"}, []string{"x", "y", "z"}, false, true},
			{9 * back, []string{"b2", "x3"}, []string{"a", "y", "z"}, false, true},
			{18 * back, []string{"d4", "x3", "y5"}, []string{"a", "b", "z"}, false, true},
			{28*back - 1, []string{"e6", "x3", "y5"}, []string{"a", "b", "d", "z"}, false, true},
			{28 * back, []string{"f7", "x3", "y5"}, []string{"a", "b", "d", "e", "z"}, false, false},
		},
		"one comes and goes": {
			{0, []string{"a1"}, []string{"y", "z"}, false, true},
			{back - 1, []string{"a1", "y2"}, []string{"z"}, false, true},
			{6 * back, []string{"b3"}, []string{"y", "z"}, false, true},
			{11*back - 2, []string{"b3", "c5", "y4"}, []string{"z"}, false, true},
			{11*back - 1, []string{"b3", "d6", "y4"}, []string{"z"}, false, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Unix(1000, 0)
			f := &folder{src: &Source{cfg: Config{Return: back}}, files: map[string]*file{}, pending: pending{due: map[string]time.Time{}, first: map[string]time.Time{}}}
			f.absence = absence{since: begin, first: steps[0].first}
			for _, s := range steps {
				for _, n := range s.lost {
					f.files[n] = &file{unkept: "it defines something"}
				}
				l := &listing{files: map[string]stamp{}}
				for _, n := range s.there {
					l.files[n[:1]] = as(uint64(n[1]))
					f.files[n[:1]] = &file{unkept: "it defines something"}
				}
				if held := f.holdBack(l, s.lost, begin.Add(s.at)); held != s.held || f.absence.first != s.first {
					t.Fatalf("after %v with %v: held %v, first %v; want %v, %v", s.at, s.there, held, f.absence.first, s.held, s.first)
				}
			}
		})
	}
}
