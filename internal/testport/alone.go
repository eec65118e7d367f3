package testport

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Alone is a lock of this machine for the tests of a package, until the returned value is closed or
// the process ends. It is for TestMain of a package whose tests use fixed addresses. The lock is a
// file in the folder for temporary files.
func Alone(pkg string) (io.Closer, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("ashore-test-%s-%d.lock", strings.ReplaceAll(pkg, "/", "-"),
		os.Getuid()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("wait for other tests of %s: %w", pkg, err)
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait for other tests of %s: lock %s: %w", pkg, path, err), f.Close())
	}
	return f, nil
}
