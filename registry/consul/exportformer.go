package consul

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

// formerGap is how often is looked whether a node from before there were fewer of them can be cleared.
const formerGap = 15 * time.Second

// clearFormer removes what stands on nodes from before there were fewer of them, once the lease that it stands under has ended:
// until then others may keep it, and afterwards it is answered to nobody. Nothing is removed before the first Publish, or after
// Withdraw.
func (e *Exporter) clearFormer(ctx context.Context) {
	ctx, stop := e.shards[0].unlessWithdrawn(ctx)
	defer stop()
	select {
	case <-ctx.Done():
		return
	case <-e.published:
	}
	tried := map[int]bool{} // what is left of them is somebody else's, or refused
	for failures := 0; ; {
		numbers, err := e.former(ctx)
		numbers = slices.DeleteFunc(numbers, func(n int) bool { return tried[n] })
		wait := formerGap
		switch {
		case err != nil:
			failures++
			wait = backoff(failures)
		case len(numbers) == 0:
			return
		default:
			failures = 0
			for _, n := range numbers {
				tried[n] = e.clear(ctx, n)
			}
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

// clear removes what stands on a former node, if its lease has ended, and says whether it has tried.
func (e *Exporter) clear(ctx context.Context, number int) bool {
	gone := make(chan struct{})
	close(gone)
	s := e.shard(number, gone)
	s.former = true
	e.clearing.Store(s)
	defer e.clearing.Store(nil)
	if ended, err := s.ended(ctx); err != nil || !ended {
		return false // it is looked again
	}
	s.run(ctx)
	return s.held
}

// ended says that nobody has held the lease of the node for so long that Consul has turned its entries critical.
func (e *shard) ended(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	checks, _, err := e.client.api.Health().Node(e.node, e.reads(ctx))
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(checks, func(c *api.HealthCheck) bool {
		return c != nil && c.CheckID == leaseCheck && c.Status == api.HealthPassing
	}), nil
}
