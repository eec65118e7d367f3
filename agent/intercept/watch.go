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
)

// retryPause is the pause after rules could not be installed again.
const retryPause = time.Second

// Watch installs the confirmed rules, as Boot does, and calls ready. Then it installs them again
// whenever another program has deleted the table, as "nft flush ruleset" does. It calls report with
// what it did, and with each error until a later attempt succeeds. Watch returns nil when ctx ends,
// and leaves the rules in place.
func (m Machine) Watch(ctx context.Context, ready func(), report func(text string)) error {
	deletions, err := deletedTables()
	if err != nil {
		return fmt.Errorf("watch nftables: %w", err)
	}
	defer deletions.Close()
	installed, err := m.Boot(ctx)
	if err != nil {
		return err
	}
	report(map[bool]string{true: "the confirmed rules are installed", false: "no rules are confirmed"}[installed])
	ready()
	defer context.AfterFunc(ctx, func() { _ = deletions.Close() })() // ends next
	for {
		if err := deletions.next(); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return fmt.Errorf("watch nftables: %w", err)
		}
		for last := ""; ; {
			restored, err := m.restore(ctx)
			switch {
			case restored:
				report("another program deleted the rules, as \"nft flush ruleset\" does: they are installed again")
			case err != nil && err.Error() != last:
				last = err.Error()
				report("another program deleted the rules: " + last)
			}
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(retryPause):
			}
		}
	}
}

// restore installs the confirmed rules if their table does not exist. After an error InstalledFile
// is gone.
func (m Machine) restore(ctx context.Context) (bool, error) {
	tables, err := nft(ctx, "", "list", "tables")
	if err != nil || hasTable(tables) {
		return false, err
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
