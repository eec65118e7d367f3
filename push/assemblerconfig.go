package push

import (
	"context"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// AssemblerConfig says what an Assembler merges and where the result goes. Functions are called
// from one goroutine and must not block.
type AssemblerConfig struct {
	// Sources are what is merged; SetSources replaces them.
	Sources Sources
	// Saved are the groups that Save received before the restart.
	Saved Saved
	// Save receives the groups that changed. Nil: they are not saved.
	Save func(Saved)
	// Join says how services that several sources supply are joined. Its ExportTo is taken from Mesh.
	Join registry.JoinConfig
	// Export is what other control planes get; nil: nothing.
	Export *ExportConfig
	// Deriver makes services of configuration; nil: there are none.
	Deriver Deriver
	// Allocator allocates virtual IPs; nil: none are allocated.
	Allocator Allocator
	// Mesh are the mesh-wide settings; required.
	Mesh *Mesh
	// Trust sends the trusted roots and revocations whenever they changed. Nothing is built before
	// the first. Nil: there is no certificate authority.
	Trust <-chan *Trust
	// Keys fetches the keys of token issuers; nil: none are fetched.
	Keys KeySource
	// Gap is the least time between two builds. The first change after a quiet period is built at
	// once. Default 50ms.
	Gap time.Duration
	// Publish receives every context; required.
	Publish func(*Context, Changes)
}

// Saved are groups of the mergers, for the next start.
type Saved struct {
	Objects  []feed.SavedGroup[*config.Object]
	Services []feed.SavedGroup[registry.Instances]
}

// Deriver makes services of configuration and of the workloads that registered. One goroutine calls
// it, except for Name.
type Deriver interface {
	// Name identifies it as a source.
	Name() string
	// Derive returns the groups that changed since the last call. The first batch is Full, all are
	// Explicit. It does not wait.
	Derive(objects Objects) feed.Batch[registry.Instances]
	// Watch sends whenever something besides objects changed, so that Derive returns more, until
	// ctx ends. It is never closed.
	Watch(ctx context.Context) <-chan struct{}
}

// Allocator allocates virtual IPs by host. Nothing waits for an allocation.
type Allocator interface {
	// Want replaces the list of hosts that need virtual IPs, sorted, with those that have some: it
	// tells that they are in use. It does not wait.
	Want(hosts []string)
	// Run sends all virtual IPs first, and again whenever they changed, until ctx ends; then it
	// returns nil.
	Run(ctx context.Context, out chan<- registry.VIPs) error
}

// KeySource fetches the public keys of the issuers of tokens.
type KeySource interface {
	// Want replaces the list of URLs whose keys are needed, sorted, each once. It does not wait.
	Want(urls []string)
	// Run sends all keys that there are whenever they changed. It also sends after each Want, once
	// each of the URLs has answered, has failed or has timed out. It returns nil when ctx ends.
	Run(ctx context.Context, out chan<- *KeySets) error
}
