package push

import (
	"context"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// Deriver makes services of configuration: registry/entry.Background does.
type Deriver interface {
	// Name identifies it to people.
	Name() string
	// Derive returns the services that changed since the last call, as groups. Those that are Relayed are in groups of their own,
	// of such alone. It must not wait for anything.
	Derive(ctx context.Context, objects Objects) feed.Batch[registry.Instances]
	// Pending says that the last Derive returned services that lack what Run is about to find.
	Pending() bool
	// Run finds what Derive may not wait for, and calls again, which does not wait, whenever Derive would return
	// more, until ctx ends; it then returns nil. It may be called from any goroutine.
	Run(ctx context.Context, again func()) error
}

// KeySource fetches the public keys of the issuers of tokens.
type KeySource interface {
	// Want names the URLs whose keys are needed from now on, sorted, each once. It does not wait.
	Want(urls []string)
	// Run sends all keys that there are whenever they have changed, and after each Want once each of its URLs has
	// answered, has failed to, or was waited for long enough. It returns nil when ctx ends.
	Run(ctx context.Context, out chan<- *KeySets) error
}

// AssemblerConfig says what an Assembler merges and where it goes.
type AssemblerConfig struct {
	// Sources are what is merged; Arrange replaces them.
	Sources Sources
	// Before is what sources said before the start that there are not any more, a batch each: as if Arrange had just taken them
	// out. Where Held has an object too, that counts.
	Before []feed.Batch[*config.Object]
	// Held is what was told to Keep last before the start: it stays in use, or is gone, as if there had been none.
	Held []Held
	// Keep is told of all objects that stay in use although no source has them, and of those that were let go lately, whenever
	// they are others. It is called from one goroutine and must not block. Nil: they are forgotten when the process ends.
	Keep func([]Held)
	// Left is told the names of sources that there are not any more once they have ended: Keep has been told what of theirs is
	// still in use. It is called from a goroutine of its own. Nil: nobody is told.
	Left func(names []string)
	// Merging are the rules for a service that several sources have.
	Merging registry.Merging
	// Tell tells others what is our own; nil: nobody is told.
	Tell *Telling
	// Derive makes services of configuration; nil: nothing does.
	Derive Deriver
	// Mesh are the mesh-wide settings; required.
	Mesh *Mesh
	// Trust tells whom workloads believe, anew on each change. Nothing is built before the first. Nil: there is no
	// certificate authority.
	Trust <-chan *Trust
	// Keys fetches the keys of the issuers of tokens; nil: none are fetched.
	Keys KeySource
	// Gap is the least time from the end of a build to the next one, so that a storm of changes costs a
	// bounded share of the machine. The first change after a quiet spell is built at once. Default 50ms.
	Gap time.Duration
	// Patience is how long a build waits for a Deriver that is pending, so that a new service arrives complete and
	// with the routes that name it. A Deriver that takes longer holds up nothing more until it answers. The first
	// build waits for it however long it takes: what a service had before the start is part of its first
	// complete state. Default 250ms.
	Patience time.Duration
	// Report is told once of each problem that no source knows of (clashes between them, services without an address,
	// Gateways, VirtualServices, DestinationRules and services that get in one another's way) when it appears, and
	// once when it is gone. It is called from one goroutine and should not block. Nil: they stand in Status alone.
	Report func(appeared, gone []feed.Problem)
	// Publish receives every context; required. It is called from one goroutine and should not block.
	Publish func(*Context, Changes)
}
