package consul

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Options are what operators set of a store in Consul.
type Options struct {
	// Address is that of Consul's HTTP interface: "http://…", "https://…" or "unix:///…". Default
	// http://127.0.0.1:8500.
	Address string `yaml:"address"`
	// Prefix is below which keys the store is; replicas that share it have the same. Required.
	Prefix string `yaml:"prefix"`
	// TokenFile has the ACL token, and is read anew for each request. Default: none, which asks as
	// Consul's anonymous token.
	TokenFile string `yaml:"tokenFile"`
	// TLS is how an https address is verified, and how this side shows who it is.
	TLS consulhttp.TLS `yaml:"tls"`
	// Datacenter is the one whose KV it is. Default: that of the agent.
	Datacenter string `yaml:"datacenter"`
	// Namespace and Partition are those of Consul Enterprise. Default: none is named, which means
	// those of the token.
	Namespace string `yaml:"namespace"`
	Partition string `yaml:"partition"`
	// MaxAge is how old this replica's copy may be to stand in at a start while Consul is away.
	// Default 0: any age.
	MaxAge time.Duration `yaml:"maxAge"`
}

// Config says where a Store is.
type Config struct {
	// Options are those that operators set.
	Options Options
	// Replica is the name of this one, for people. Required.
	Replica string
	// Kept is where a copy of the whole state stands, for a start while Consul is away. Required.
	Kept feed.Store
	// Patience is how long Open tries to ask Consul before it gives up; before a copy stands in it
	// is 2s at most. Default 5s.
	Patience time.Duration
	// HistoryTotal bounds how many writes of objects are remembered. The latest revision is,
	// however many it has. Default 50000; all replicas have the same.
	HistoryTotal int
	// HistoryBytes bounds how large these are together, by what they replaced. The latest revision
	// is remembered, however large it is. Default 64 MiB; all replicas have the same.
	HistoryBytes int
	// CompactBytes is after how many bytes of entries a snapshot is written, at least: as a
	// snapshot has everything, and small entries such as signs of life come all the time, it is
	// never before twice its own size. CompactEntries is after how many entries one is in any case,
	// as who starts reads each of them. Default 4 MiB, and 65536: what an idle replica writes in
	// days.
	CompactEntries, CompactBytes int
	// Log is told of what an operator would act on; required.
	Log hclog.Logger
}

func (c *Config) defaults() error {
	if c.Replica == "" || c.Kept == nil || c.Log == nil {
		return errors.New("a store in Consul needs the name of the replica, a place for its copy and a logger")
	}
	if c.Options.Address == "" {
		c.Options.Address = consulhttp.DefaultAddress
	}
	if c.Patience == 0 {
		c.Patience = 5 * time.Second
	}
	if c.HistoryTotal == 0 {
		c.HistoryTotal = 50_000
	}
	if c.HistoryBytes == 0 {
		c.HistoryBytes = 64 << 20
	}
	if c.CompactEntries == 0 {
		c.CompactEntries = 1 << 16
	}
	if c.CompactBytes == 0 {
		c.CompactBytes = 4 << 20
	}
	var errs []error
	c.Options.Check(func(option, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", option, fmt.Sprintf(format, args...)))
	})
	return errors.Join(errs...)
}

// place is where the keys are, as a text: the prefix, and what is set of whose KV that is.
func (o Options) place() string {
	var more []string
	if scheme, rest, err := consulhttp.SplitAddress(cmp.Or(o.Address, consulhttp.DefaultAddress)); err == nil {
		if address := scheme + "://" + rest; address != consulhttp.DefaultAddress {
			more = append(more, address)
		}
	}
	for _, part := range []struct{ name, value string }{{"datacenter", o.Datacenter}, {"partition", o.Partition},
		{"namespace", o.Namespace}} {
		if part.value != "" {
			more = append(more, part.name+" "+part.value)
		}
	}
	if len(more) == 0 {
		return o.Prefix
	}
	return o.Prefix + "@" + strings.Join(more, ", ")
}

// Check tells what is wrong with options, by their names among the settings.
func (o Options) Check(wrong func(option, format string, args ...any)) {
	consulhttp.CheckAddress(o.Address, o.TLS, wrong)
	for part := range strings.SplitSeq(o.Prefix, "/") {
		ok := func(c rune) bool {
			return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
				strings.ContainsRune("-_.", c)
		}
		if part == "" || part == "." || part == ".." || strings.IndexFunc(part,
			func(c rune) bool { return !ok(c) }) >= 0 {
			wrong("prefix", "%q: want letters, digits, '-', '_' and '.' between slashes, as ashore/cluster.local",
				o.Prefix)
			break
		}
	}
	if len(o.Prefix) > 256 {
		wrong("prefix", "it has %d bytes, more than 256", len(o.Prefix))
	}
	for _, name := range []struct{ option, value string }{{"datacenter", o.Datacenter}, {"namespace", o.Namespace},
		{"partition", o.Partition}} {
		if name.value != "" && !dnsname.ValidLabel(name.value) {
			wrong(name.option, "%q: want small letters, digits and '-'", name.value)
		}
	}
}
