package filestore

import (
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// stamp tells whether a file may have changed without reading it.
type stamp struct {
	size               int64
	modified           time.Time
	device, inode      uint64
	changedS, changedN int64
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.device, s.inode = uint64(sys.Dev), sys.Ino
		s.changedS, s.changedN = int64(sys.Ctim.Sec), int64(sys.Ctim.Nsec)
	}
	return s
}

// isConfig says whether a file of this name is read.
func isConfig(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !hidden(name)
	}
	return false
}

// hidden says whether a part of a path within the folder begins with a dot; "." itself does not count.
func hidden(rel string) bool {
	return rel != "." && (strings.HasPrefix(rel, ".") || strings.Contains(rel, string(filepath.Separator)+"."))
}

// file is what is known of one file. It belongs to the folder's loop.
type file struct {
	name   string
	stamp  stamp // zero: read it again at the next opportunity
	digest [sha256.Size]byte
	seen   [sha256.Size]byte // like digest, but kept over a restart
	known  time.Time         // since when there is a file of this name

	objects []*config.Object // what it holds, last good versions included
	held    map[config.Key]bool
	goodAt  time.Time        // when the last good content that held is from was read
	asOf    time.Time        // when the present content was read
	kept    bool             // what it holds is from before the start, and it was not read since
	issues  []config.Problem // found by reading it
	claims  []config.Key     // the keys that owners has of it
	link    string           // where it ends, when it is a symlink

	// unkept is why not all that was kept of it before the start can be used, and rest that, as it was kept, the newest first. They are empty once
	// the file is without errors: it then says itself what it holds.
	unkept string
	rest   [][]byte
	had    map[config.Key]bool // the objects that were in it since there is rest

	edited time.Time    // when its present content was first read, or at the start after that when lately; zero: before that was kept
	lately bool         // that was one change with the end before the start, and it was not read since: the rest may have come while nobody looked
	unread bool         // something in it is refused of which the key cannot be read
	fresh  []config.Key // the objects in it that are refused and had no last good version here
	// wrong says that there is an error in it, clashing that it defines what another file defined first: the one error that
	// does not show in its content. An empty file is not wrong: its content may be on its way.
	wrong, clashing bool
	// guests are the objects that stay although the file does not name them any more, or never did, and what they may
	// have become: a refused object of their kind, or the zero Key when nobody can tell.
	guests map[config.Key]config.Key
}

// reading is the outcome of reading one file.
type reading struct {
	name   string
	at     time.Time
	stamp  stamp
	digest [sha256.Size]byte
	data   []byte
	result config.Result
	same   bool   // the content is what it was before; result is empty
	blank  bool   // there is nothing in the file; result is blankResult
	link   string // where a symlink ends; empty for a plain file
	err    error
}

// errBusy says that a file was written while it was read.
var errBusy = errors.New("it is being written")

// read reads and parses one file. known is what is known of it, nil for a new one. It touches nothing
// that is shared.
func (s *Source) read(name string, known *[sha256.Size]byte) (r reading) {
	start := time.Now()
	r = reading{name: name, at: start}
	f, link, err := s.open(name)
	if err != nil {
		r.link, r.err = link, err
		return r
	}
	r.link = link
	if r.data, r.stamp, r.err = readFile(f); r.err != nil {
		return r
	}
	r.digest = sha256.Sum256(r.data)
	if known != nil && *known == r.digest {
		r.same = true
		return r
	}
	if r.blank = blank(r.data); r.blank {
		r.result = blankResult(name, blankAtWork)
	} else {
		r.result = Parse(name, r.data)
	}
	for _, o := range r.result.Objects {
		o.Origin.Source = s.name
	}
	if !clean(r.result) {
		r.data = nil // what is kept of it are its objects; there may be thousands of such files
	}
	s.cfg.OnRead(Read{File: name, Took: time.Since(start), Objects: len(r.result.Objects), Problems: len(r.result.Problems)})
	return r
}

// written says of a file of the folder what the function written says.
func (s *Source) written(name string) (complete, ok bool) {
	f, _, err := s.open(name)
	if err != nil {
		return false, false
	}
	defer f.Close() // read only: there is nothing to lose
	return written(f)
}

// readFile reads and closes a file that nobody writes to meanwhile.
func readFile(f *os.File) (data []byte, s stamp, err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	before, err := f.Stat()
	if err != nil {
		return nil, s, err
	}
	if !before.Mode().IsRegular() { // it was replaced since openRegular looked at it
		return nil, s, irregular(f.Name())
	}
	// one more than allowed shows Parse that there is too much
	if data, err = io.ReadAll(io.LimitReader(f, config.MaxFileSize+1)); err != nil {
		return nil, s, err
	}
	after, err := f.Stat()
	if err != nil {
		return nil, s, err
	}
	if after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return nil, s, errBusy
	}
	return data, stampOf(before), nil
}
