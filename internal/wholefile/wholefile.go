package wholefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// mark stands in the names of files that are being written.
const mark = ".new-"

// Write puts data at path with mode 0600, whole or not at all. Errors name the path.
func Write(path string, data []byte) error {
	return WriteFrom(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// WriteFrom is Write of what fill writes.
func WriteFrom(path string, fill func(io.Writer) error) error {
	temp, err := Prepare(path, 0o600, fill)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(temp))
	}
	return nil
}

// Prepare writes what is to stand at path beside it, on the disk, and returns under which name. The
// caller renames it. Errors name the path, and leave nothing there.
func Prepare(path string, mode fs.FileMode, fill func(io.Writer) error) (temp string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+mark) // has mode 0600
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	err = fill(f)
	if err == nil {
		err = errors.Join(f.Chmod(mode), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// Clean removes from a folder what a killed process left half-written. Nobody may write there
// meanwhile.
func Clean(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") && strings.Contains(e.Name(), mark) && e.Type().IsRegular() {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// SyncFolder has the names in a folder survive a loss of power: renames, new files, removals.
func SyncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
