package main

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// guard has it be told what keeps the store in the state folder from being written: its file is not there any more, or the disk did not
// take a write. Errors: the metric is registered already.
func (p *program) guard(d doors, back *backend) error {
	p.run("file of the store", d.home.Guard)
	back.more = append(back.more, func() []feed.Problem { return homeProblems(d.home) })
	fold := back.fold
	back.fold = func(all []feed.Problem) []feed.Problem {
		if all = foldHome(all, d.home.Name()); fold != nil {
			all = fold(all)
		}
		return all
	}
	return d.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ashore_store_file_missing", Help: "1 while the file of the store is not found by its name: nothing is written then."}, func() float64 {
		return map[bool]float64{true: 1}[d.home.Missing() != ""]
	}))
}

// homeProblems say what keeps the store from being written: its file is gone, or the disk did not take a write.
func homeProblems(home *bolt.Store) []feed.Problem {
	now := home.Refused()
	if gone := home.Missing(); gone != "" {
		now = config.Outage{Error: gone}
	}
	if now.Error == "" {
		return nil
	}
	return []feed.Problem{{Severity: feed.Error, Source: home.Name(), Field: bolt.Unwritable, Text: now.Error, Since: now.Since}}
}

// foldHome leaves out what homeProblems tell of the store in the state folder, by name, and the store as a source tells too, with since
// when.
func foldHome(all []feed.Problem, home string) []feed.Problem {
	told := map[string]bool{}
	return slices.DeleteFunc(all, func(p feed.Problem) bool {
		if p.Source != home || p.Field != bolt.Unwritable {
			return false
		}
		again := told[p.Text]
		told[p.Text] = true
		return again
	})
}
