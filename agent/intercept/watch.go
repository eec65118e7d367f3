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
	const done = "the confirmed rules are installed"
	installed, err := m.Boot(ctx)
	switch {
	case err != nil:
		report(err.Error())
	case installed:
		report(done)
	default:
		report("no rules are confirmed")
	}
	ready()
	retry(ctx, err, m.Boot, report, done)
	for {
		if err := deletions.next(); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return fmt.Errorf("watch nftables: %w", err)
		}
		const done = "another program deleted the rules, as \"nft flush ruleset\" does: they are installed again"
		restored, err := m.restore(ctx)
		if err != nil {
			report("another program deleted the rules: " + err.Error())
		} else if restored {
			report(done)
		}
		retry(ctx, err, m.restore, report, done)
	}
}

// retry calls install until it succeeds or ctx ends. err is the result of the attempt before; nil:
// retry does nothing. done is the report of a success.
func retry(ctx context.Context, err error, install func(context.Context) (bool, error), report func(string),
	done string) {
	for err != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryPause):
		}
		before := err.Error()
		var installed bool
		installed, err = install(ctx)
		switch {
		case installed:
			report(done)
		case err != nil && err.Error() != before:
			report(err.Error())
		}
	}
}

// restore installs the confirmed rules if their table or InstalledFile does not exist. After an
// error InstalledFile is gone.
func (m Machine) restore(ctx context.Context) (bool, error) {
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
