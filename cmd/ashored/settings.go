package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/jwks"
	"github.com/ashore-mesh/ashore/internal/strictyaml"
	"github.com/ashore-mesh/ashore/push"
)

const (
	defaultConfig  = "/etc/ashore/ashored.yaml"
	defaultFiles   = "/etc/ashore/config"
	defaultMetrics = "127.0.0.1:15014"
	devXDS         = "127.0.0.1:15010"
	devState       = ".ashore"
)

// settings are the settings file. docs/settings.md tells operators about each.
type settings struct {
	// State is the folder of all that is kept on this machine. Default /var/lib/ashore.
	State string `yaml:"state"`
	// Store says where what is written to the mesh is kept.
	Store storeSettings `yaml:"store"`
	// Sources are where configuration and services come from, the deciding one first. Default: the
	// files of /etc/ashore/config, then the store.
	Sources yaml.Node `yaml:"sources"`
	// Merge says how one service is made of what several sources say of it.
	Merge mergeSettings `yaml:"merge"`
	// Domain completes short host names: "web" in namespace shop is web.shop.svc.<Domain>. Default
	// cluster.local.
	Domain  string          `yaml:"domain"`
	XDS     xdsSettings     `yaml:"xds"`
	Metrics metricsSettings `yaml:"metrics"`
	Admin   adminSettings   `yaml:"admin"`
	Log     logSettings     `yaml:"log"`
	Memory  memorySettings  `yaml:"memory"`
	CA      caSettings      `yaml:"ca"`
	// Attestors are whom the authority believes besides join tokens and its own certificates.
	Attestors attestorSettings `yaml:"attestors"`
	Audit     auditSettings    `yaml:"audit"`
	Workloads workloadSettings `yaml:"workloads"`
	// Webhook is validation over HTTPS.
	Webhook webhookSettings `yaml:"webhook"`
	// MCP says which other control planes are told the configuration.
	MCP mcpSettings `yaml:"mcp"`
	// Fetch bounds where keys of issuers are fetched from.
	Fetch fetchSettings `yaml:"fetch"`
	// Mesh and Networks are Istio's MeshConfig and MeshNetworks.
	Mesh     yaml.Node `yaml:"mesh"`
	Networks yaml.Node `yaml:"meshNetworks"`

	sources  []sourceSettings // made of Sources
	mesh     *push.Mesh       // made of Mesh and Networks
	warnings []feed.Problem   // about them
	access   admin.Access     // made of Admin.Roles
	fetch    jwks.Config      // made of Fetch

	places *strictyaml.Places // of the settings that are from a file
	flags  map[string]string  // the flags that settings are from
	dev    bool               // development
}

type xdsSettings struct {
	// Address serves xDS and the certificate authority with TLS. Default :15012; empty, as in
	// development: there is no authority, and nobody has an identity.
	Address string `yaml:"address"`
	// Advertise is where agents reach Address: each HOST:PORT stands in the command that makes them
	// join. Default: Address, and where that is every address, what findReach finds.
	Advertise []string `yaml:"advertise"`
	// PlaintextAddress serves xDS without TLS: for loopback, or a network that is trusted. What
	// connects there has no identity. Default: off; 127.0.0.1:15010 in development.
	PlaintextAddress string `yaml:"plaintextAddress"`
	// Gap is the least time between two builds in a storm of changes. Default 50ms.
	Gap time.Duration `yaml:"gap"`
	// WorkloadConnections is how many connections to Address, and how many streams on all of them,
	// one workload may have at once. What it may hold in memory grows with it beyond 16. Default
	// 16.
	WorkloadConnections int `yaml:"workloadConnections"`
}

type metricsSettings struct {
	// Address serves metrics, health and readiness over HTTP. Default 127.0.0.1:15014.
	Address string `yaml:"address"`
}

type adminSettings struct {
	// Socket is the unix socket of the admin API. Default /run/ashore/admin.sock; admin.sock in the
	// state folder in development.
	Socket string `yaml:"socket"`
	// Roles says who may use it besides root and the user that ashored runs as. Default: nobody.
	Roles admin.Roles `yaml:"roles"`
}

type logSettings struct {
	// Level is trace, debug, info, warn or error. Default info.
	Level string `yaml:"level"`
	// Format is text or json. Default text.
	Format string `yaml:"format"`
}

type memorySettings struct {
	// GCPercent is how much the heap may grow, in percent of what is in use, before garbage is
	// collected: Go's GOGC. Default 50: with 1000 proxies that connect at once it halves the peak
	// of 100, for a tenth more CPU.
	GCPercent int `yaml:"gcPercent"`
	// Limit is a soft limit, "2GiB", near which garbage is collected more eagerly: Go's GOMEMLIMIT.
	// Default: none.
	Limit string `yaml:"limit"`
}

// defaults are the settings of an empty file.
func defaults() settings {
	return settings{
		State:     "/var/lib/ashore",
		Store:     defaultStore(),
		sources:   defaultSources(defaultFiles),
		Merge:     mergeSettings{Endpoints: "unite"},
		Domain:    "cluster.local",
		XDS:       xdsSettings{Address: ":15012", Gap: 50 * time.Millisecond, WorkloadConnections: 16},
		Metrics:   metricsSettings{Address: defaultMetrics},
		Admin:     adminSettings{Socket: "/run/ashore/admin.sock"},
		Log:       logSettings{Level: "info", Format: "text"},
		Memory:    memorySettings{GCPercent: 50},
		CA:        caSettings{KeyType: "ecdsa", Validity: 24 * time.Hour, Grace: ca.DefaultGrace},
		Audit:     auditSettings{MaxSize: "64MiB", Keep: 8},
		Workloads: workloadSettings{Grace: 10 * time.Second, RestartGrace: 5 * time.Minute},
		Webhook:   defaultWebhook(),
	}
}

// devDefaults are the settings of development without flags or file.
func devDefaults() settings {
	s := defaults()
	s.dev = true
	s.sources = nil
	s.State, s.Admin.Socket, s.XDS.Address, s.XDS.PlaintextAddress = devState, "", "", devXDS
	return s
}

// readSettings lays the file path over s. What they mean is for check to say.
func readSettings(path string, s settings) (settings, error) {
	data, err := strictyaml.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, fmt.Errorf("there is no settings file %s: write one, name another with --config, or start with --dev",
			path)
	case err != nil:
		return s, err
	}
	s.places, err = strictyaml.Decode(path, data, &s)
	return s, errors.Join(err, s.readSources())
}

// place is where a setting is from: a flag, a line of the file, or file.
func (s *settings) place(setting, file string) string {
	return cmp.Or(s.flags[setting], s.places.Of(setting), file)
}

// check makes the mesh's settings and tells everything that is wrong; file is where the settings
// are from.
func (s *settings) check(file string) error {
	return errors.Join(s.checkMesh(file), s.checkOwn(file))
}

// checkOwn checks Ashore's own settings.
func (s *settings) checkOwn(file string) error {
	var errs []error
	wrong := func(setting, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s: %s", s.place(setting, file), setting, fmt.Sprintf(format, args...)))
	}
	s.checkServed(wrong)
	s.checkIdentity(wrong)
	s.checkWebhook(wrong)
	s.checkMCP(wrong)
	if s.XDS.Gap <= 0 {
		wrong("xds.gap", "%v: want more than 0, such as 1ms", s.XDS.Gap)
	}
	for _, path := range []struct{ setting, value string }{{"state", s.State}, {"admin.socket", s.Admin.Socket}} {
		if path.value == "" {
			wrong(path.setting, "empty: name a path")
		}
	}
	s.checkStore(wrong)
	s.checkSources(wrong)
	s.checkMerge(wrong)
	if !dnsname.Valid(s.Domain) {
		wrong("domain", "%q is not the suffix of host names: want small letters, digits and '-' between dots, such as cluster.local", s.Domain)
	}
	if hclog.LevelFromString(s.Log.Level) == hclog.NoLevel || strings.EqualFold(s.Log.Level, "off") {
		wrong("log.level", "%q is not a level: want trace, debug, info, warn or error", s.Log.Level)
	}
	if s.Log.Format != "text" && s.Log.Format != "json" {
		wrong("log.format", "%q is not a format: want text or json", s.Log.Format)
	}
	if s.Memory.GCPercent < 10 {
		wrong("memory.gcPercent", "%d: want 10 or more", s.Memory.GCPercent)
	}
	if n, err := parseBytes(s.Memory.Limit); err != nil {
		wrong("memory.limit", "%v", err)
	} else if n > 0 && n < leastMemory {
		wrong("memory.limit", "%s is less than ashored needs: want %dMiB or more, or leave it out", s.Memory.Limit,
			leastMemory>>20)
	}
	return errors.Join(errs...)
}

// checkServed checks the addresses that are listened on, and how many may connect.
func (s *settings) checkServed(wrong func(setting, format string, args ...any)) {
	if s.XDS.WorkloadConnections < 1 {
		wrong("xds.workloadConnections", "%d: want 1 or more, such as 16", s.XDS.WorkloadConnections)
	}
	if s.XDS.Address == "" && s.XDS.PlaintextAddress == "" {
		wrong("xds.address", "empty, and xds.plaintextAddress is not set: there is no address to serve proxies at")
	}
	addresses := []struct{ setting, value string }{{"xds.address", s.XDS.Address},
		{"xds.plaintextAddress", s.XDS.PlaintextAddress}, {"metrics.address", s.Metrics.Address}, {"webhook.address",
			s.Webhook.Address}}
	for i, a := range addresses {
		// An empty address of metrics would be any port of every interface.
		if err := checkAddress(a.value); err != nil && (a.value != "" || a.setting == "metrics.address") {
			wrong(a.setting, "%v", err)
		}
		for _, b := range addresses[:i] {
			if a.value != "" && a.value == b.value {
				wrong(a.setting, "%s is %s too: give each an address of its own", a.value, b.setting)
			}
		}
	}
}

// leastMemory is the lowest limit that makes sense, in bytes: below it garbage is collected without
// end.
const leastMemory = 64 << 20

// inside says whether path is dir or lies below it. Empty paths are told of elsewhere. A hidden
// folder does not count: configuration is not looked for in it.
func inside(path, dir string) bool {
	if path == "" || dir == "" {
		return false
	}
	rel, err := filepath.Rel(absolute(dir), absolute(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../") && (rel == "." || !strings.HasPrefix(rel, "."))
}

// absolute is path from the root on, or as it is when the working folder is gone.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// checkMesh reads Istio's part.
func (s *settings) checkMesh(file string) error {
	section := func(n *yaml.Node) *yaml.Node {
		if n.IsZero() {
			return nil
		}
		return n
	}
	mesh, problems := config.ParseMesh(file, section(&s.Mesh))
	networks, more := config.ParseMeshNetworks(file, section(&s.Networks))
	s.mesh = &push.Mesh{Config: mesh, Networks: networks, Domain: s.Domain}
	s.warnings = nil
	var errs []error
	for _, p := range append(problems, more...) {
		if p.IsError() {
			errs = append(errs, errors.New(p.String()))
			continue
		}
		s.warnings = append(s.warnings, p)
	}
	return errors.Join(errs...)
}

// checkAddress wants host:port with a literal IP address or nothing before the colon.
func checkAddress(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is not an address: want HOST:PORT such as %s", s, devXDS)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 && host == "" {
		return fmt.Errorf("%q is not a port of %q: want a number up to 65535", port, s)
	}
	if host != "" && net.ParseIP(host) == nil {
		return fmt.Errorf("%q of %q is not an IP address", host, s)
	}
	return nil
}

// parseBytes reads "512MiB" or "2GiB"; empty is 0.
func parseBytes(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	for unit, shift := range map[string]uint{"MiB": 20, "GiB": 30} {
		if digits, ok := strings.CutSuffix(s, unit); ok {
			n, err := strconv.ParseUint(digits, 10, 20)
			if err == nil && n > 0 {
				return int64(n) << shift, nil
			}
		}
	}
	return 0, fmt.Errorf("%q is not a size: want a number with MiB or GiB, such as 512MiB", s)
}

// apply sets the runtime's memory settings. They hold for the whole process.
func (m memorySettings) apply() {
	debug.SetGCPercent(m.GCPercent)
	if limit, err := parseBytes(m.Limit); err == nil && limit > 0 { // checked with the settings
		debug.SetMemoryLimit(limit)
	}
}
