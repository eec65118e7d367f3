package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

const (
	// CheckStoreCommand is the command of ashored that checks a store file: reading a damaged one
	// may end the process, so a child does it.
	CheckStoreCommand = "check-store"
	// auditFileSize is the size at which the audit log begins a new file.
	auditFileSize = 64 << 20
	// auditFiles is how many full files of the audit log are kept. They are copied away by those who
	// need more.
	auditFiles = 8
)

// authorityFolder is where the keys of the certificate authority are.
func authorityFolder(cfg settings.Config) string { return filepath.Join(cfg.State, "ca") }

// openState opens the store and the audit log in the state folder, or creates them. It comes first:
// the second of two processes with one state folder gets an error that names the first.
func (s *Server) openState() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to check the store with it: %w", err)
	}
	err = wholefile.Guard(s.cfg.State, "set another folder (setting state)")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.home, err = bolt.New(bolt.Config{Dir: s.cfg.State, CheckCommand: []string{self, CheckStoreCommand},
		Lost: lostWithState(s.cfg), Log: s.log.Named("store")})
	if err != nil {
		return fmt.Errorf("store (setting state): %w", err)
	}
	s.closers = append(s.closers, s.home.Close)
	s.run("file of the store", s.home.Watch)
	if err := wholefile.Clean(s.cfg.State); err != nil {
		return fmt.Errorf("state folder (setting state): %w", err)
	}
	s.audit, err = audit.Open(audit.Config{Path: filepath.Join(s.cfg.State, "audit.jsonl"), MaxSize: auditFileSize,
		Keep: auditFiles, Log: s.log.Named("audit"), Registerer: s.registry})
	if err != nil {
		return fmt.Errorf("%w (in the state folder, setting state)", err)
	}
	s.closers = append(s.closers, s.audit.Close)
	s.collect(func(emit emitFunc) {
		emit("ashore_store_file_unwritable", "1 while the store in the state folder cannot be written: "+
			"its disk is full or read-only, or its file is missing.", truth(s.home.Outage().Error != ""))
	})
	return nil
}

// lostWithState returns what is lost with a damaged store file; empty: all objects and records.
func lostWithState(cfg settings.Config) string {
	if !cfg.Store.Shared() {
		return ""
	}
	return "what was active before the restart, and this replica's copy of the store in Consul (setting store), " +
		"which it reads again from there: that start needs Consul"
}

// listeners are opened before anything runs: an address in use shows at once.
type listeners struct {
	secure, plain, webhook net.Listener // nil: not served
	metrics, admin         net.Listener
}

// listen opens the addresses.
func (s *Server) listen() error {
	for _, to := range []struct {
		at               *net.Listener
		address, setting string
	}{
		{&s.listeners.secure, s.cfg.XDS.Address, "xds.address"},
		{&s.listeners.plain, s.cfg.XDS.PlaintextAddress, "xds.plaintextAddress"},
		{&s.listeners.metrics, s.cfg.Metrics.Address, "metrics.address"},
		{&s.listeners.webhook, s.cfg.Webhook.Address, "webhook.address"},
	} {
		if to.address == "" {
			continue
		}
		l, err := net.Listen("tcp", to.address)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: stop the process that uses it (\"ss -ltnp\" shows it), or choose another port", err)
		}
		if err != nil {
			return fmt.Errorf("%w (setting %s)", err, to.setting)
		}
		*to.at = l
		s.closeLater(l)
	}
	l, err := admin.Listen(s.cfg.Admin.Socket, s.cfg.Access.Others())
	if err != nil {
		return fmt.Errorf("%w (setting admin.socket)", err)
	}
	s.listeners.admin = l
	s.closeLater(l)
	return nil
}

// closeLater closes l with the server.
func (s *Server) closeLater(l net.Listener) {
	s.closers = append(s.closers, func() error {
		_ = l.Close() // the part that serves it may have done so
		return nil
	})
}
