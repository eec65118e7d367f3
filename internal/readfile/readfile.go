package readfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Read returns the content of a file, and its metadata when it was opened. It returns an error with
// the name if the file does not exist (fs.ErrNotExist), is not a regular file, or has more than
// limit bytes. It does not block on a pipe.
func Read(path string, limit int) (data []byte, info fs.FileInfo, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // without it, opening a pipe waits for a writer
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err = f.Stat()
	switch {
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("%s is not a regular file (%v)", path, info.Mode())
	}
	data, err = io.ReadAll(io.LimitReader(f, int64(limit)+1))
	switch {
	case err != nil:
		return nil, nil, err
	case len(data) > limit:
		return nil, nil, fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return data, info, nil
}
