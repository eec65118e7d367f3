package wholefile

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Guard returns an error unless only this user can write to dir. The folder must not be a symbolic
// link and must not be writable by others. Its owner must be the user that runs the program, also
// if that is root. remedy is the end of the error: what to do if the folder cannot be corrected.
func Guard(dir, remedy string) error {
	dir = filepath.Clean(dir) // with a slash at its end Lstat would follow a link
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("state folder: %w: %s", err, remedy)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return fmt.Errorf("state folder %s is a symbolic link that leads nowhere (%v): remove it, or %s",
				dir, err, remedy)
		}
		return fmt.Errorf("state folder %s is a symbolic link to %s: %s", dir, target, remedy)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case ok && int(st.Uid) != os.Geteuid():
		owner, self := userName(int(st.Uid)), userName(os.Geteuid())
		return fmt.Errorf("state folder %s belongs to the user %s, and this program runs as %s: "+
			"if you trust what is in it, run \"chown -R %s %s\"; otherwise %s", dir, owner, self, self, dir, remedy)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("state folder %s can be written by other users (%v): "+
			"make it this user's alone (chmod 700), or %s", dir, info.Mode(), remedy)
	}
	return nil
}

// userName returns the name of a user, or the number if it has no name.
func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}
