package consul

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/internal/feed"
)

type problem = feed.Problem

// update returns the datacenter's problem group.
func (c *catalog) update() update { return update{Group: c.group, Problems: c.problems} }

// updateProblems posts the problems of a datacenter if they have changed.
func (s *syncer) updateProblems(c *catalog) {
	if !c.changed {
		return
	}
	c.changed = false
	var list []problem
	warn := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		list = append(list, problem{Severity: feed.Warning, Object: "Consul, " + c.at.title(), Text: text})
	}
	if c.err != "" {
		warn("%s; its services stay as they were", c.err)
	} else {
		s.warn(c, warn)
	}
	if !slices.Equal(list, c.problems) {
		c.problems = list
		s.post(c.update())
	}
}

// warn reports the problems of a datacenter that responds.
func (s *syncer) warn(c *catalog, warn func(format string, args ...any)) {
	var first *service // first failing service by name
	failing, hidden := 0, 0
	for _, svc := range c.services {
		if svc.hidden {
			hidden++
		}
		if svc.err != "" {
			failing++
			if first == nil || svc.name < first.name {
				first = svc
			}
		}
	}
	if first != nil {
		warn("cannot read %d of %d services, which stay as they were; %s: %s", failing, len(c.services), first.name,
			first.err)
	}
	if hidden > 0 {
		warn("the token cannot read %d of %d services any more, which stay as they were: "+
			"give it node:read and service:read, or name them in the option except", hidden, len(c.services))
	}
	if c.filtered && !s.hasAllNamed(c) {
		warn("the token cannot read all services; the others are not in the mesh: give it node:read and service:read "+
			"(tokenFile: %s), or name those that it can read in the option services", cmp.Or(s.o.TokenFile,
			"none is set"))
	}
	if c.index != 0 && len(c.services) == 0 && s.o.chooses() {
		warn("no service matches the settings: check services, except, tags, metadata and nodeMetadata")
	}
	if n := s.services(); n > maxBlocking && !s.client.shared() {
		warn("%d services over plain HTTP: %d are watched, and changes of the others are found every %s; "+
			"use an https address, over which all are watched", n, maxBlocking, pollGap)
	}
}

// services returns the number of services of all datacenters.
func (s *syncer) services() (n int) {
	for _, c := range s.catalogs {
		n += len(c.services)
	}
	return n
}

// hasAllNamed reports whether the settings name services, and all of them are there.
func (s *syncer) hasAllNamed(c *catalog) bool {
	for _, name := range s.o.Services {
		if c.services[name] == nil {
			return false
		}
	}
	return len(s.o.Services) > 0
}

// chooses reports whether an option excludes services.
func (o *Options) chooses() bool {
	return len(o.Services)+len(o.Except)+len(o.Tags)+len(o.Metadata)+len(o.NodeMetadata) > 0
}
