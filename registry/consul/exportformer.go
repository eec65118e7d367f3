package consul

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

// formerGap is how often is tried again to clear a node whose lease another one had.
const formerGap = time.Minute

// clearFormer removes what stands on nodes from before there were fewer of them. Who holds the lease of such a node is left
// alone until it ends: it has not heard of that yet, or has ended without giving it back.
func (e *Exporter) clearFormer(ctx context.Context) {
	for failures := 0; ; {
		numbers, err := e.former(ctx)
		wait := formerGap
		switch {
		case err == nil && len(numbers) == 0:
			return
		case err == nil:
			failures = 0
			e.clear(ctx, numbers)
		default:
			failures++
			wait = backoff(failures)
		}
		if failures == toldAfter {
			e.cfg.Log.Warn("it is not known whether former nodes stand in Consul (fewer export.nodes than before); it is tried again", "error", consulhttp.Bare(err))
		}
		if sleep(ctx, wait) != nil {
			return
		}
	}
}

// former are the numbers of the owner's nodes that are beyond those of the settings.
func (e *Exporter) former(ctx context.Context) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	x := e.cfg.Options.Export
	q := e.shards[0].reads(ctx)
	q.NodeMeta = map[string]string{keyOwner: x.Owner}
	nodes, _, err := e.client.api.Catalog().Nodes(q)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, n := range nodes {
		if n == nil {
			continue
		}
		number, err := strconv.Atoi(strings.TrimPrefix(n.Node, x.node(0)+"--"))
		if err == nil && number >= x.Nodes && n.Node == x.node(number) {
			out = append(out, number)
		}
	}
	return out, nil
}

func (e *Exporter) clear(ctx context.Context, numbers []int) {
	gone := make(chan struct{})
	close(gone)
	var all sync.WaitGroup
	for _, n := range numbers {
		s := e.shard(n, gone)
		s.former = true
		e.cfg.Log.Info("a node from before there were fewer is cleared in Consul", "node", s.node)
		all.Go(func() { s.run(ctx) })
	}
	all.Wait()
}
