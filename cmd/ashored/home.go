package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// watchHome reports what is wrong with the stores, and watches the file of the one in the state
// folder. active reports whether a source of that name is used: the store in Consul then reports
// its outage itself. Errors: the metric is registered already.
func (p *program) watchHome(d doors, back *backend, active func(source string) bool) error {
	p.run("file of the store", d.home.Watch)
	back.more = append(back.more, func() []feed.Problem {
		out := homeProblems(d.home)
		if s, ok := d.store.(sharedStore); ok {
			out = append(out, sharedProblems(s, active)...)
		}
		return out
	})
	unwritable := prometheus.GaugeOpts{
		Name: "ashore_store_file_unwritable",
		Help: "1 while the store in the state folder cannot be written: " +
			"its disk is full or read-only, or its file is missing.",
	}
	return d.registry.Register(prometheus.NewGaugeFunc(unwritable, func() float64 {
		return truth(d.home.Outage().Error != "")
	}))
}

// homeProblems returns why the store in the state folder cannot be written.
func homeProblems(home *bolt.Store) []feed.Problem {
	now := home.Outage()
	if now.Error == "" {
		return nil
	}
	return []feed.Problem{{
		Severity: feed.Error, Source: home.Name(), Field: "state", Text: now.Error, Since: now.Since,
	}}
}
