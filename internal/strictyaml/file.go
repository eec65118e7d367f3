package strictyaml

import (
	"fmt"

	"github.com/ashore-mesh/ashore/internal/readfile"
)

// MaxFile is the largest settings file, in bytes.
const MaxFile = 1 << 20

// ReadFile returns a settings file. It returns an error with the name if the file does not exist
// (fs.ErrNotExist), is not a regular file, or has more than MaxFile bytes.
func ReadFile(path string) ([]byte, error) {
	data, _, err := readfile.Read(path, MaxFile)
	if err != nil {
		return nil, fmt.Errorf("settings file: %w", err)
	}
	return data, nil
}
