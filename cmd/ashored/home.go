package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// guard reports what is wrong with the stores, and watches the file of the one in the state folder. active says whether a source of
// that name is used: a store that is a source reports itself that it is down. Errors: the metric is registered already.
func (p *program) guard(d doors, back *backend, active func(source string) bool) error {
	p.run("file of the store", d.home.Guard)
	back.more = append(back.more, func() []feed.Problem {
		var out []feed.Problem
		if s, ok := d.store.(sharedStore); ok {
			out = sharedProblems(s, active)
		}
		if !active(d.home.Name()) {
			out = append(out, homeProblems(d.home)...)
		}
		return out
	})
	return d.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ashore_store_file_missing", Help: "1 while the file of the store is not found by its name: nothing is written then."}, func() float64 {
		return truth(d.home.Missing() != "")
	}))
}

// homeProblems say why the store cannot be written: its file is missing, or the disk refused a write.
func homeProblems(home *bolt.Store) []feed.Problem {
	now := home.Refused()
	if missing := home.Missing(); missing != "" {
		now = config.Outage{Error: missing}
	}
	if now.Error == "" {
		return nil
	}
	return []feed.Problem{{Severity: feed.Error, Source: home.Name(), Field: bolt.Unwritable, Text: now.Error, Since: now.Since}}
}
