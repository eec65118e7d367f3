package wholefile

import (
	"fmt"
	"os"
	"syscall"
)

// Guard says why a folder is not safe from other users: who can write there can put another file in the place of any. Root
// is not another user. Errors: those of the file system, or "state folder X …", with what to do.
func Guard(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("state folder (setting state): %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() && os.Geteuid() != 0:
		return fmt.Errorf("state folder %s belongs to another user (%d): set another folder (setting state, or --state)", dir, st.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("state folder %s can be written by other users (%v): make it this user's alone (chmod 700), or set another folder (setting state, or --state)", dir, info.Mode())
	}
	return nil
}
