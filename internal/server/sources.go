package server

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore"
	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/mcp"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/consul"
)

// makeSources makes the sources that the settings name. saved has the names of those whose content
// from before the restart is used.
func (s *Server) makeSources(saved map[string]bool) (out push.Sources, err error) {
	var errs []error
	for _, src := range s.cfg.SourceList {
		objects, services, err := s.makeSource(src, saved[src.ID()])
		if err != nil {
			errs = append(errs, fmt.Errorf("setting %s (%s): %w", src.At, src.ID(), err))
			continue
		}
		if objects != nil {
			out.Objects = append(out.Objects, push.Source[*config.Object]{Source: objects, Optional: !src.Required})
		}
		if services != nil {
			out.Services = append(out.Services, push.Source[registry.Instances]{Source: services, Optional: !src.Required})
		}
	}
	return out, errors.Join(errs...)
}

// makeSource makes a source of objects, one of services, or both; the other is nil.
func (s *Server) makeSource(src settings.Source, saved bool) (objects config.Source,
	services feed.Source[registry.Instances], err error) {
	log := s.log.Named(src.Name)
	switch o := src.Options.(type) {
	case *settings.FilesSource:
		files, err := filestore.New(filestore.Config{Name: src.ID(), Dir: o.Folder, Log: log})
		if err == nil && src.Required && !saved {
			err = files.Check()
		}
		return files, nil, err
	case *settings.StoreSource:
		return s.store, nil, nil
	case *settings.ConsulSource:
		s.report(func() []feed.Problem { return exposure(src.ID(), src.At, o.Address, o.TokenFile) })
		services, err = consul.New(consul.Config{Name: src.ID(), Options: o.Options, Log: log})
		return nil, services, err
	case *settings.KubernetesSource:
		return s.makeKubernetes(src, o, log)
	case *settings.MCPSource:
		if o.Plaintext && !loopback(strings.TrimPrefix(o.Address, "xds://")) {
			s.log.Warn("a source without TLS: anybody on the path can read and change the mesh's configuration",
				"source", src.ID(), "address", o.Address)
		}
		objects, err = mcp.New(mcp.Config{Name: src.ID(), Options: o.Options, Log: log})
		return objects, nil, err
	}
	return nil, nil, fmt.Errorf("unknown kind %q", src.Kind)
}

// exposure warns of a Consul that others may read or change. setting is the one with its address.
func exposure(source, setting, address, tokenFile string) (out []feed.Problem) {
	consulhttp.Exposure(address, tokenFile, func(option, format string, args ...any) {
		out = append(out, feed.Problem{Severity: feed.Warning, Source: source, Field: setting + "." + option,
			Text: fmt.Sprintf(format, args...)})
	})
	return out
}
