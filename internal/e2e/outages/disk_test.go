package outages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// disk is a file system of a folder's own, which the kernel makes read-only when it finds it at
// fault.
type disk struct {
	t        *testing.T
	device   string // "loop3"
	dir      string
	attached bool
}

// diskless is why a test can have no disk of its own on this machine; empty: it can.
func diskless() string {
	if os.Geteuid() != 0 {
		return "needs root: mounts a file system"
	}
	for _, program := range []string{"mkfs.ext4", "e2fsck", "losetup"} {
		if _, err := exec.LookPath(program); err != nil {
			return "needs " + program + " (packages e2fsprogs and mount)"
		}
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return "needs loop devices"
	}
	return ""
}

// newDisk makes one and mounts it on a folder.
func newDisk(t *testing.T, dir string) *disk {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, fs.FileMode(0o600)), os.Truncate(image, 64<<20)); err != nil {
		t.Fatal(err)
	}
	d := &disk{t: t, dir: dir}
	d.run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-e", "remount-ro", image)
	d.device = filepath.Base(strings.TrimSpace(d.run("losetup", "--find", "--show", image)))
	t.Cleanup(func() {
		d.run("losetup", "--detach", "/dev/"+d.device)
	})
	// Processes of other tests that start now with mounts of their own, as "ip netns exec" starts them,
	// have this one too. Below a shared mount it goes there when it goes here.
	err := errors.Join(unix.Mount(dir, dir, "", unix.MS_BIND, ""), unix.Mount("", dir, "", unix.MS_SHARED, ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d.mount()
	t.Cleanup(d.unmount)
	return d
}

func (d *disk) run(argv ...string) string {
	d.t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

func (d *disk) mount() {
	d.t.Helper()
	if err := unix.Mount("/dev/"+d.device, d.dir, "ext4", 0, "errors=remount-ro"); err != nil {
		d.t.Fatalf("mount %s: %v", d.device, err)
	}
	d.attached = true
	if err := errors.Join(os.Chmod(d.dir, 0o700), os.RemoveAll(filepath.Join(d.dir, "lost+found"))); err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) unmount() {
	if d.attached {
		d.attached = false
		if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
			d.t.Errorf("unmount %s: %v", d.dir, err)
		}
	}
}

// fail has the kernel find a fault: from now on the file system is read-only.
func (d *disk) fail() {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join("/sys/fs/ext4", d.device, "trigger_fs_error"), []byte("test"), 0); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "probe"), nil, fs.FileMode(0o600)); !errors.Is(err, unix.EROFS) {
		d.t.Fatalf("the disk is not read-only: %v; the test proves nothing", err)
	}
}

// mend has the file system checked, and mounts it again.
func (d *disk) mend() {
	d.t.Helper()
	d.unmount()
	var exit *exec.ExitError
	// 1: there were faults, and they are mended
	// a process of another test that starts may hold it for a moment
	harness.Eventually(d.t, "the file system is mended", func() error {
		out, err := exec.Command("e2fsck", "-fy", "/dev/"+d.device).CombinedOutput()
		if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
			return fmt.Errorf("e2fsck: %w: %s", err, out)
		}
		return nil
	})
	d.mount()
}

// binding is a folder that can be mounted on another one, and taken away from there.
type binding struct {
	t           *testing.T
	folder, dir string
	mounted     bool
}

// bind mounts a folder of its own on dir until the test ends.
func bind(t *testing.T, dir string) *binding {
	t.Helper()
	b := &binding{t: t, folder: t.TempDir(), dir: dir}
	b.mount()
	t.Cleanup(b.unmount)
	return b
}

func (b *binding) mount() {
	b.t.Helper()
	if err := unix.Mount(b.folder, b.dir, "", unix.MS_BIND, ""); err != nil {
		b.t.Fatalf("mount on %s: %v", b.dir, err)
	}
	b.mounted = true
}

func (b *binding) unmount() {
	if b.mounted {
		b.mounted = false
		if err := unix.Unmount(b.dir, unix.MNT_DETACH); err != nil {
			b.t.Errorf("unmount %s: %v", b.dir, err)
		}
	}
}
