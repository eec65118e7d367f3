package strictyaml

import (
	"fmt"

	"github.com/ashore-mesh/ashore/internal/readfile"
)

// MaxFile bounds a settings file, in bytes.
const MaxFile = 1 << 20

// ReadFile returns a settings file as it stands. Errors name it: it is not there (fs.ErrNotExist),
// not a regular file, or has more than MaxFile bytes.
func ReadFile(path string) ([]byte, error) {
	data, _, err := readfile.Read(path, MaxFile)
	if err != nil {
		return nil, fmt.Errorf("settings file: %w", err)
	}
	return data, nil
}
