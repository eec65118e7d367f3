package consul

import (
	"cmp"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Options are the settings of a store in Consul. It is in the datacenter of the agent, and in
// Consul Enterprise in the namespace of the token and the partition of the agent.
type Options struct {
	// Address is that of Consul's HTTP interface: "http://…", "https://…" or "unix:///…". Default
	// http://127.0.0.1:8500.
	Address string `yaml:"address"`
	// Prefix is where the keys of the store are. All replicas have the same. Required.
	Prefix string `yaml:"prefix"`
	// TokenFile has the ACL token. It is read for each request. Default: the anonymous token.
	TokenFile string `yaml:"tokenFile"`
	// TLS configures https addresses.
	TLS consulhttp.TLS `yaml:"tls"`
}

// Config configures a Store. Replica, Kept and Log are required.
type Config struct {
	Options Options
	// Replica is the name of this replica, for operators.
	Replica string
	// Kept is where this replica's copy of the store is saved, for a start while Consul is down.
	Kept feed.Store
	// Patience is how long Open waits for Consul. With a copy it waits at most 2s. Default 5s.
	Patience time.Duration
	// HistoryBytes bounds the size of the history; the latest revision always stays. Default 64 MiB.
	HistoryBytes int
	// CompactEntries is the number of entries in a log after which a snapshot is written. Default
	// 4096.
	CompactEntries uint64
	// Log receives what an operator would act on.
	Log hclog.Logger
}

func (c *Config) defaults() error {
	if c.Replica == "" || c.Kept == nil || c.Log == nil {
		return errors.New("a store in Consul needs the name of the replica, a place for its copy and a logger")
	}
	c.Options.Address = cmp.Or(c.Options.Address, consulhttp.DefaultAddress)
	c.Patience = cmp.Or(c.Patience, 5*time.Second)
	c.HistoryBytes = cmp.Or(c.HistoryBytes, 64<<20)
	c.CompactEntries = cmp.Or(c.CompactEntries, 4096)
	return consulhttp.Checked(c.Options.Check)
}

// place names where the keys are.
func (o Options) place() string { return o.Prefix + "@" + cmp.Or(o.Address, consulhttp.DefaultAddress) }

// Check reports invalid options by their names in the settings file.
func (o Options) Check(wrong func(option, format string, args ...any)) {
	consulhttp.CheckAddress(o.Address, o.TLS, wrong)
	other := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_./", c)
	}
	if o.Prefix == "" || path.Clean("/"+o.Prefix) != "/"+o.Prefix || strings.ContainsFunc(o.Prefix, other) {
		wrong("prefix", "%q: want letters, digits, '-', '_' and '.' between slashes, as ashore/cluster.local", o.Prefix)
	}
	if len(o.Prefix) > 256 {
		wrong("prefix", "it has %d bytes, and at most 256 are allowed", len(o.Prefix))
	}
}
