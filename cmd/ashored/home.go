package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// guard has it be told when the file of the store in the state folder is not there any more. Errors: the metric is registered
// already.
func (p *program) guard(d doors, back *backend) error {
	p.run("file of the store", d.home.Guard)
	back.more = append(back.more, func() []feed.Problem { return homeProblems(d.home) })
	return d.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ashore_store_file_missing", Help: "1 while the file of the store is not found by its name: nothing is written then."}, func() float64 {
		return map[bool]float64{true: 1}[d.home.Missing() != ""]
	}))
}

// homeProblems say that the file of the store is gone.
func homeProblems(home *bolt.Store) []feed.Problem {
	text := home.Missing()
	if text == "" {
		return nil
	}
	return []feed.Problem{{Severity: feed.Error, Source: home.Name(), Text: text}}
}
