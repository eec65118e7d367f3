package adminapi

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/push"
)

// Published holds the context that proxies are served from. Safe for concurrent use; Publish is
// called by one goroutine.
type Published struct{ latest atomic.Pointer[publication] }

// publication is one published context.
type publication struct {
	context *push.Context // nil before the first
	at      time.Time
	number  uint64
	counts  func() admin.ConfigStatus // counted once, when first called
}

// NewPublished returns a Published without a context.
func NewPublished() *Published {
	p := &Published{}
	p.latest.Store(newPublication(nil, 0))
	return p
}

func newPublication(c *push.Context, number uint64) *publication {
	p := &publication{context: c, at: time.Now(), number: number}
	p.counts = sync.OnceValue(p.count)
	return p
}

// Publish replaces the context and reports whether it is the first.
func (p *Published) Publish(c *push.Context) (first bool) {
	last := p.latest.Load()
	p.latest.Store(newPublication(c, last.number+1))
	return last.context == nil
}

// Context returns the latest context; nil before the first.
func (p *Published) Context() *push.Context { return p.latest.Load().context }

// count counts what the context contains.
func (p *publication) count() admin.ConfigStatus {
	s := admin.ConfigStatus{Objects: map[string]int{}}
	if p.context == nil {
		return s
	}
	s.Built, s.Contexts = p.at, p.number
	in := p.context.Inputs()
	s.Services = in.Services.Len()
	for k := range in.Objects.All() {
		s.Objects[string(k.Kind)]++
	}
	for _, l := range in.Endpoints.All() {
		s.Endpoints += l.Len()
	}
	return s
}
