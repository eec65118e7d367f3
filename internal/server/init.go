package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/settings"
)

// hasStore reports whether the state folder has the file of a store. An empty file is none.
func hasStore(cfg settings.Config) (bool, error) {
	info, err := os.Lstat(filepath.Join(cfg.State, bolt.FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() > 0, err
}

// Init creates what is missing of a control plane, and returns what it did, one line each: the
// store in the state folder, or the store that replicas share, and a root certificate in it. Nothing
// is created in a store that another replica created, and no root where one is plugged in.
func Init(ctx context.Context, cfg settings.Config, log hclog.Logger) (done []string, err error) {
	exists, err := hasStore(cfg)
	if err != nil {
		return nil, err
	}
	if exists {
		done = append(done, cfg.State+" has a store already, which was not changed")
	}
	s := newServer(cfg, log)
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.openState(); err != nil {
		return nil, err
	}
	if !exists {
		done = append(done, "created the store in "+cfg.State)
	}
	created, err := s.openStore(ctx, true)
	switch {
	case err != nil:
		return nil, err
	case created:
		done = append(done, "created the store "+s.shared.Place()+" in Consul, with the content of "+cfg.State)
	case cfg.Store.Shared(): // an operator puts a replica token into the folder
		err := os.MkdirAll(authorityFolder(cfg), 0o700)
		return append(done, "the store "+s.shared.Place()+" in Consul exists already: this replica shares it"), err
	}
	if !cfg.Secure() || cfg.CA.Plugged != "" {
		return done, nil
	}
	authority, err := ca.NewManager(ctx, s.managerConfig(cfg.XDS.Advertise))
	if err != nil {
		return nil, err
	}
	root := authority.Bundle().Roots[0]
	return append(done, fmt.Sprintf("the root certificate is %s, valid until %s", ca.RootID(root),
		root.NotAfter.Format(time.DateOnly))), nil
}
