package filestore

import (
	"os"
	"path/filepath"
)

// linked says that symlinks end in dir.
func (f *folder) linked(dir string) bool {
	for end := range f.links {
		if filepath.Dir(end) == dir {
			return true
		}
	}
	return false
}

// link watches the place where a symlink ends.
func (f *folder) link(r reading) {
	if r.link == "" {
		return
	}
	if f.links[r.link] == nil {
		f.links[r.link] = map[string]bool{}
	}
	f.links[r.link][r.name] = true
	dir := filepath.Dir(r.link)
	if info, err := os.Stat(dir); err == nil {
		f.watch.add(dir, stampOf(info))
	}
}

func (f *folder) unlink(name string) {
	for end, names := range f.links {
		delete(names, name)
		if len(names) == 0 {
			delete(f.links, end)
		}
	}
}
