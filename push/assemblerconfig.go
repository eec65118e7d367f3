package push

import (
	"context"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// AssemblerConfig configures an Assembler. Its functions are called from one goroutine and must not
// block.
type AssemblerConfig struct {
	// Sources are the sources whose content is merged.
	Sources Sources
	// Saved are the groups that Save received before the restart.
	Saved Saved
	// Save receives the groups that changed. If it is nil, nothing is saved.
	Save func(Saved)
	// Join configures how services that several sources supply are joined. NewAssembler sets its
	// ExportTo from Mesh.
	Join registry.JoinConfig
	// Export configures what is exported to other control planes. Nil if nothing is.
	Export *ExportConfig
	// Deriver derives services from configuration. May be nil.
	Deriver Deriver
	// Allocator allocates virtual IPs. May be nil.
	Allocator Allocator
	// Mesh holds the mesh-wide settings. Required.
	Mesh *Mesh
	// Trust receives the trusted roots and revocations after each change. Nothing is built before
	// the first. Nil if there is no certificate authority.
	Trust <-chan *Trust
	// Keys fetches the keys of token issuers. May be nil.
	Keys KeySource
	// Gap is the shortest time between two builds. The first change after a quiet period is built
	// at once. Default 50ms.
	Gap time.Duration
	// Publish receives every context. Required.
	Publish func(*Context, Changes)
}

// Saved holds groups of the mergers, for the next start.
type Saved struct {
	Objects  []feed.SavedGroup[*config.Object]
	Services []feed.SavedGroup[registry.Instances]
}

// Deriver derives services from configuration and registered workloads. One goroutine calls it,
// except for Name.
type Deriver interface {
	// Name returns the name of the deriver as a source.
	Name() string
	// Derive returns the groups that changed since the last call. The first batch is Full. All are
	// Explicit. It does not wait.
	Derive(objects Objects) feed.Batch[registry.Instances]
	// Watch returns a channel that receives when something other than objects changed, so that
	// Derive returns more, until ctx ends. The channel is never closed.
	Watch(ctx context.Context) <-chan struct{}
}

// Allocator allocates virtual IPs by host. The first build waits until stored allocations are read.
// After that nothing waits for an allocation.
type Allocator interface {
	// Want replaces the list of hosts that need virtual IPs, sorted. It includes the hosts that
	// have virtual IPs, which marks these as used. It does not wait.
	Want(hosts []string)
	// Run sends all virtual IPs first, and again after each change. It returns nil when ctx ends.
	Run(ctx context.Context, out chan<- registry.VIPs) error
}

// KeySource fetches the public keys of the issuers of tokens.
type KeySource interface {
	// Want replaces the URLs whose keys are needed, with the time that a fetch may take. Zero means
	// the default. It does not wait.
	Want(timeouts map[string]time.Duration)
	// Run sends all keys after each change. It also sends after each Want, when every URL has
	// answered, failed or timed out. It returns nil when ctx ends.
	Run(ctx context.Context, out chan<- *KeySets) error
}
