package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// shard registers the services of the mesh whose names are its, on a node of its own and under a lease of its own, for as long
// as it holds that. Run it once.
type shard struct {
	cfg    *ExporterConfig
	number int
	client *client
	node   string
	former bool // nobody is to register on that node: the settings have fewer

	latest   atomic.Pointer[meshState]
	wake     chan struct{}   // capacity 1: there is another latest
	withdraw <-chan struct{} // closed when it is to remove what it has registered

	// the following are of the goroutine of run
	waitsFor, told string // who holds the lease, and of whom that was told
	held           bool   // it has held the lease

	mu sync.Mutex
	// the following are guarded by mu
	status ExportStatus
}

// stands is how it stands. Safe for concurrent use.
func (e *shard) stands() ExportStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.status
	out.Problems = slices.Clone(out.Problems)
	return out
}

func (e *shard) tell(f func(*ExportStatus)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(&e.status)
}

// errWithdrawn is why Run ends after Withdraw.
var errWithdrawn = errors.New("withdrawn")

// run registers until ctx ends, or until what it has registered is withdrawn.
func (e *shard) run(ctx context.Context) {
	if !e.begun(ctx) {
		return
	}
	for failures := 0; ; {
		began := time.Now()
		err := e.term(ctx)
		e.tell(func(s *ExportStatus) { s.Holds = false })
		if ctx.Err() != nil || errors.Is(err, errWithdrawn) {
			return
		}
		if time.Since(began) > time.Minute {
			failures = 0
		}
		failures++
		e.trouble(err, failures)
		if sleep(ctx, backoff(failures)) != nil {
			return
		}
	}
}

// begun waits until there is something to register; false: it ends before.
func (e *shard) begun(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-e.withdraw:
		return true
	case <-e.wake:
		return true
	}
}

// trouble tells, of failures in a row, that Consul cannot be written to; nil: it can.
func (e *shard) trouble(err error, failures int) {
	if err != nil && failures < toldAfter && !errors.Is(err, errForeign) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	list, was := splitTrouble(e.status.Problems)
	if err == nil {
		if was != nil {
			e.cfg.Log.Info("the mesh's services are registered in Consul again")
		}
		e.status.Problems = list
		return
	}
	now := feed.Problem{Severity: feed.Warning, Source: e.source(), Object: exportObject, Text: e.explain(err), Since: time.Now()}
	if was != nil {
		now.Since = was.Since
	}
	if was == nil || was.Text != now.Text {
		text := "the mesh's services cannot be registered in Consul; what stands there stays for the lease"
		if e.former {
			text = "what stands on a node from before there were fewer of them cannot be removed from Consul"
		}
		e.cfg.Log.Warn(text, "node", e.node, "error", now.Text)
	}
	e.status.Problems = append(list, now)
}

// exportObject is what problems about all of it are about.
const exportObject = "export"

// splitTrouble parts what trouble has told from the others.
func splitTrouble(list []feed.Problem) (others []feed.Problem, told *feed.Problem) {
	for _, p := range list {
		if p.Object == exportObject {
			told = &p
		} else {
			others = append(others, p)
		}
	}
	return others, told
}

// explain says what an error means, and what to do.
func (e *shard) explain(err error) string {
	if errors.Is(err, errForeign) || errors.Is(err, errLeaseLost) || errors.Is(err, errOtherStore) {
		return err.Error()
	}
	if denied(err) {
		x := e.cfg.Options.Export
		return fmt.Sprintf("Consul refuses the token (%s): for what export needs the one in tokenFile (%s) wants node %q, session %q and key %q with write, and service with write for the names that are registered",
			consulhttp.OneLine(err.Error()), cmp.Or(e.cfg.Options.TokenFile, "none is set"), e.node, e.node, x.lease(e.number))
	}
	return e.client.explain(err)
}

func (e *shard) source() string { return "consul:" + e.cfg.Name }
