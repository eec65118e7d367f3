package strictyaml

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// MaxFile bounds a settings file, in bytes.
const MaxFile = 1 << 20

// ReadFile returns a settings file as it stands. Errors name it: it is not there (fs.ErrNotExist), not a regular
// file, or has more than MaxFile bytes.
func ReadFile(path string) (data []byte, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("settings file: %w", err)
	case !info.Mode().IsRegular(): // a pipe could be waited for without end
		return nil, fmt.Errorf("settings file %s is not a regular file (%v): name one", path, info.Mode())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("settings file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err = io.ReadAll(io.LimitReader(f, MaxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("settings file: %w", err)
	case len(data) > MaxFile:
		return nil, fmt.Errorf("settings file %s has more than %d bytes: it is not one of settings", path, MaxFile)
	}
	return data, nil
}
