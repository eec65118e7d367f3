package filestore

import (
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

// fileID identifies a file or folder, whatever its path.
type fileID struct{ device, inode uint64 }

// stamp shows, without reading a file, whether it changed.
type stamp struct {
	id       fileID
	size     int64
	modified time.Time
	changed  syscall.Timespec // when the inode changed
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.id, s.changed = fileID{uint64(sys.Dev), sys.Ino}, sys.Ctim
	}
	return s
}

// isConfig reports whether files of this name are read.
func isConfig(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !hidden(name)
	}
	return false
}

// hidden reports whether a name begins with a dot.
func hidden(name string) bool { return strings.HasPrefix(filepath.Base(name), ".") && name != "." }

// errBusy means that a file changed while it was read.
var errBusy = errors.New("it is being written")

// clockStep is the resolution of file times. A file that changed less than this before it was read
// may change again without another time.
const clockStep = 20 * time.Millisecond

// readFile reads and closes a file. The stamp is zero when a later change might not show in it.
func readFile(f *os.File) (data []byte, s stamp, err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	before, err := f.Stat()
	if err != nil {
		return nil, s, err
	}
	if !before.Mode().IsRegular() { // it was replaced since openRegular looked at it
		return nil, s, irregular(f.Name())
	}
	now := time.Now()
	// one byte more than allowed lets Parse refuse the file
	if data, err = io.ReadAll(io.LimitReader(f, config.MaxFileSize+1)); err != nil {
		return nil, s, err
	}
	after, err := f.Stat()
	switch {
	case err != nil:
		return nil, s, err
	case stampOf(after) != stampOf(before):
		return nil, s, errBusy
	case now.Sub(before.ModTime()).Abs() < clockStep:
		return data, stamp{}, nil
	}
	return data, stampOf(before), nil
}

// reason is an error of the file system without the path.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return err.Error()
}
