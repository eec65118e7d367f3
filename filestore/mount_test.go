package filestore

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// What is mounted over the folder, or taken away from it, is noticed though the kernel tells of no change.
func TestMounts(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	dir := folderOf(t, map[string]string{})
	mount := func() {
		t.Helper()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
	}
	mounted := false
	unmount := func() {
		if mounted {
			mounted = false
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(unmount)
	mount()
	mounted = true
	put(t, dir, "a.yaml", entry("a", "10.0.0.1"))
	w := run(t, Config{Dir: dir})
	w.want("a=10.0.0.1")
	unmount()
	w.want("a=10.0.0.1", "there is no file of configuration in the folder any more")
	mount()
	mounted = true
	put(t, dir, "a.yaml", entry("a", "10.0.0.2"))
	w.want("a=10.0.0.2")
	put(t, dir, "a.yaml", entry("a", "10.0.0.3")) // the new folder is watched
	w.want("a=10.0.0.3")
	w.stop()
}
