package intercept

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// retryPause is the pause after rules could not be installed again.
const retryPause = time.Second

// Watch installs the confirmed rules, as Boot does, and calls ready after the first attempt. Then it
// installs them again whenever another program has deleted the table, as "nft flush ruleset" does.
// An attempt that fails is repeated until one succeeds. Watch calls report with what it did, and
// with each new error. It returns nil when ctx ends, and leaves the rules in place.
func (m Machine) Watch(ctx context.Context, ready func(), report func(text string)) error {
	deletions, err := deletedTables()
	if err != nil {
		return fmt.Errorf("watch nftables: %w", err)
	}
	defer deletions.Close()
	defer context.AfterFunc(ctx, func() { _ = deletions.Close() })() // unblocks next
	installed, err := m.Boot(ctx)
	if err == nil && !installed {
		report("no rules are confirmed")
	}
	ready()
	for last := ""; ; installed, err = m.restore(ctx) {
		text := ""
		if err != nil {
			text = err.Error()
		} else if installed {
			text = "the confirmed rules are installed"
		}
		if text != "" && (installed || text != last) {
			report(text)
		}
		last = text
		if err != nil {
			task.Sleep(ctx, retryPause)
			err = nil
		} else {
			err = deletions.next()
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch nftables: %w", err)
		}
	}
}

// restore installs the confirmed rules if their table or InstalledFile does not exist. After an
// error InstalledFile is gone. The end of ctx does not interrupt it, because that would be an error.
func (m Machine) restore(ctx context.Context) (bool, error) {
	ctx = context.WithoutCancel(ctx)
	tables, err := nft(ctx, "", "list", "tables")
	if err != nil {
		return false, errors.Join(err, wholefile.Remove(m.marker()))
	}
	if _, err := os.Stat(m.marker()); err == nil && hasTable(tables) {
		return false, nil
	}
	return m.Boot(ctx)
}

// deletions is a netlink socket that receives the changes of nftables.
type deletions struct{ *os.File }

// deletedTables opens the socket.
func deletedTables() (*deletions, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK,
		Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)}); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &deletions{os.NewFile(uintptr(fd), "nftables")}, nil
}

// next waits until a table was deleted, or until messages were lost.
func (d *deletions) next() error {
	const deleted = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELTABLE
	buf := make([]byte, 1<<16)
	for {
		n, err := d.Read(buf)
		if errors.Is(err, unix.ENOBUFS) {
			return nil
		}
		if err != nil {
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil || slices.ContainsFunc(messages, func(m syscall.NetlinkMessage) bool {
			return m.Header.Type == deleted
		}) {
			return nil
		}
	}
}
