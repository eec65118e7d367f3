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

// At each scan of a folder that was waited for: whether it does not count as read yet, and whether files that are lost stay.
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
			{11 * back, []string{"d4"}, []string{"a", "b", "c"}, false, true},
			{12*back - 1, []string{"d4"}, []string{"a", "b", "c"}, false, true},
			{12 * back, []string{"d4"}, []string{"a", "b", "c"}, false, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Unix(1000, 0)
			f := &folder{src: &Source{cfg: Config{Return: back}}, files: map[string]*file{}, pending: pending{due: map[string]time.Time{}, first: map[string]time.Time{}}}
			f.absence = absence{since: begin, first: true}
			for _, s := range steps {
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
