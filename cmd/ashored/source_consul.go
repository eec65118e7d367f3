package main

import "github.com/ashore-mesh/ashore/registry/consul"

// consulSource is a Consul.
type consulSource struct{ consul.Options }

func (c *consulSource) into() any { return &c.Options }

func (c *consulSource) check(wrong func(option, format string, args ...any)) { c.Check(wrong) }
