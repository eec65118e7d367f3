package filestore

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"
)

// settled reads the files that were left alone for long enough. One that a process still has open for
// writing waits on, but not for ever: some process may never close it.
func (f *folder) settled() {
	now := time.Now()
	var names []string
	for name, first := range f.pending.take(now) {
		if name == scanName {
			f.scanNow = true
			continue
		}
		if done, ok := f.src.written(name); ok && !done && now.Sub(first) < patience {
			f.pending.touch(name, false, now)
			f.pending.first[name] = first
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	f.readAll(names)
}

// patience is how long a file that is open for writing is left alone at most.
const patience = 2 * time.Second

// readAll reads files and takes in what they say.
func (f *folder) readAll(names []string) {
	for _, name := range names {
		f.pending.drop(name)
	}
	readings, all := f.readings(names)
	if !all {
		return
	}
	var gone []string
	for _, name := range names {
		if r := readings[name]; errors.Is(r.err, fs.ErrNotExist) {
			f.index.leave(f.files[name])
		}
	}
	for _, name := range names {
		r := readings[name]
		switch {
		case errors.Is(r.err, errBusy):
			f.pending.touch(name, false, time.Now())
		case errors.Is(r.err, fs.ErrNotExist) && r.link == "" && !isLink(filepath.Join(f.src.cfg.Dir, name)):
			gone = append(gone, name)
		default:
			f.take(r, false)
		}
	}
	f.missing(gone)
}

// progress tells how many files are still to be read; false: stop reading.
type progress func(left int) bool

// progressEvery is after how many files progress is told, when there are more.
const progressEvery = 1000

// readings reads files, several at once when there are several. Not all are there when progress
// says to stop.
func (f *folder) readings(names []string) (out map[string]reading, all bool) {
	out = make(map[string]reading, len(names))
	for len(names) > progressEvery {
		if !f.progress(len(names)) {
			return out, false
		}
		f.readSome(names[:progressEvery], out)
		names = names[progressEvery:]
	}
	f.readSome(names, out)
	return out, true
}

// readSome reads files into out.
func (f *folder) readSome(names []string, out map[string]reading) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan string)
	for range min(len(names), runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for name := range next {
				r := f.src.read(name, f.digest(name))
				mu.Lock()
				out[name] = r
				mu.Unlock()
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	wg.Wait()
}

// digest is that of a known file's content, nil when it is not known.
func (f *folder) digest(name string) *[sha256.Size]byte {
	if x := f.files[name]; x != nil && x.digest != ([sha256.Size]byte{}) {
		return &x.digest
	}
	return nil
}
