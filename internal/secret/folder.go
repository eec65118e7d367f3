package secret

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ashore-mesh/ashore/internal/readfile"
)

// maxFile is the largest size of a file of a secret, in bytes.
const maxFile = 1 << 20

// found is what a source has.
type found struct {
	secrets map[Name]Secret // nil: nothing can be read
	failed  map[Name]error  // secrets that cannot be read
	err     error           // why nothing can be read, or there may be other secrets now
}

func newFound() found { return found{secrets: map[Name]Secret{}, failed: map[Name]error{}} }

// readFolder reads the files NAMESPACE/NAME/{tls.crt,tls.key,ca.crt,ca.crl} of a folder. Symlinks
// are followed. Names that begin with a dot are not read.
func readFolder(dir string) found {
	namespaces, err := folders(dir)
	if err != nil {
		return found{err: err}
	}
	out := newFound()
	for _, namespace := range namespaces {
		path := filepath.Join(dir, namespace)
		names, err := folders(path)
		if err != nil {
			return found{err: err}
		}
		for _, name := range names {
			n := Name{namespace, name}
			s, err := readFiles(filepath.Join(path, name))
			if err = errors.Join(n.Check(), err); err != nil {
				out.failed[n] = err
				continue
			}
			out.secrets[n] = s
		}
	}
	return out
}

// folders lists the folders in a folder.
func folders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if err == nil && info.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// readFiles reads the files of one secret.
func readFiles(dir string) (Secret, error) {
	var s Secret
	for _, p := range s.parts() {
		data, info, err := readfile.Read(filepath.Join(dir, p.file), maxFile)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return s, err
		case p.value == &s.Key && info.Mode().Perm()&0o007 != 0:
			return s, fmt.Errorf("every user of this machine may read or write %s: run \"chmod o= %s\"",
				filepath.Join(dir, p.file), filepath.Join(dir, p.file))
		}
		*p.value = string(data)
	}
	return s, nil
}
