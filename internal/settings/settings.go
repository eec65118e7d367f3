package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
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
	DefaultFile    = "/etc/ashore/ashored.yaml"
	defaultFiles   = "/etc/ashore/config"
	DefaultMetrics = "127.0.0.1:15014"
	DevXDS         = "127.0.0.1:15010"
	DevState       = ".ashore"
)

// Config is the settings file. docs/settings.md describes each setting for operators.
type Config struct {
	// State is the folder for everything that ashored saves on this machine. Default
	// /var/lib/ashore.
	State string `yaml:"state"`
	// Store is where objects and records of the mesh are kept.
	Store Store `yaml:"store"`
	// Sources are where configuration and services come from, the deciding one first. Default: the
	// files of /etc/ashore/config, then the store.
	Sources yaml.Node `yaml:"sources"`
	// Merge configures services that several sources have.
	Merge Merge `yaml:"merge"`
	// Domain completes short host names: "web" in namespace shop is web.shop.svc.<Domain>. Default
	// cluster.local.
	Domain  string  `yaml:"domain"`
	XDS     XDS     `yaml:"xds"`
	Metrics Metrics `yaml:"metrics"`
	Admin   Admin   `yaml:"admin"`
	Log     Log     `yaml:"log"`
	CA      CA      `yaml:"ca"`
	// Attestors are accepted by the authority besides join tokens and its own certificates.
	Attestors Attestors `yaml:"attestors"`
	Workloads Workloads `yaml:"workloads"`
	// Webhook is validation over HTTPS.
	Webhook Webhook `yaml:"webhook"`
	// MCP selects the other control planes that may read the configuration.
	MCP MCP `yaml:"mcp"`
	// Fetch limits from where keys of issuers are fetched.
	Fetch Fetch `yaml:"fetch"`
	// Mesh is Istio's MeshConfig.
	Mesh yaml.Node `yaml:"mesh"`

	SourceList  []Source       // made of Sources
	MeshConfig  *push.Mesh     // made of Mesh
	Warnings    []feed.Problem // about it
	Access      admin.Access   // made of Admin.Roles
	FetchConfig jwks.Config    // made of Fetch

	// Development is set by --dev, and Flags are the flags that settings come from.
	Development bool
	Flags       map[string]string

	places *strictyaml.Places // of the settings in the file
}

type XDS struct {
	// Address serves xDS and the certificate authority with TLS. Default :15012; empty, as in
	// development: there is no authority, and nobody has an identity.
	Address string `yaml:"address"`
	// Advertise is where agents reach Address: each HOST:PORT is in the command that makes them
	// join. Default: Address, or the address that findReach finds.
	Advertise []string `yaml:"advertise"`
	// PlaintextAddress serves xDS without TLS: for loopback, or a network that is trusted. What
	// connects there has no identity. Default: off; 127.0.0.1:15010 in development.
	PlaintextAddress string `yaml:"plaintextAddress"`
	// WorkloadConnections is how many connections to Address, and how many streams on all of them,
	// one workload may have at once. What it may hold in memory grows with it beyond 16. Default
	// 16.
	WorkloadConnections int `yaml:"workloadConnections"`
}

type Metrics struct {
	// Address serves metrics, health and readiness over HTTP. Default 127.0.0.1:15014.
	Address string `yaml:"address"`
}

type Admin struct {
	// Socket is the unix socket of the admin API. Default /run/ashore/admin.sock; admin.sock in the
	// state folder in development.
	Socket string `yaml:"socket"`
	// Roles are those of users besides root and the user that ashored runs as. Default: none.
	Roles admin.Roles `yaml:"roles"`
}

type Log struct {
	// Level is trace, debug, info, warn or error. Default info.
	Level string `yaml:"level"`
	// Format is text or json. Default text.
	Format string `yaml:"format"`
}

// Default returns the settings of an empty file.
func Default() Config {
	return Config{
		State:      "/var/lib/ashore",
		Store:      defaultStore(),
		SourceList: DefaultSources(defaultFiles),
		Merge:      Merge{Endpoints: "unite"},
		Domain:     "cluster.local",
		XDS:        XDS{Address: ":15012", WorkloadConnections: 16},
		Metrics:    Metrics{Address: DefaultMetrics},
		Admin:      Admin{Socket: "/run/ashore/admin.sock"},
		Log:        Log{Level: "info", Format: "text"},
		CA:         CA{Validity: 24 * time.Hour, Grace: ca.DefaultGrace},
		Workloads:  Workloads{Grace: 10 * time.Second, RestartGrace: 5 * time.Minute},
	}
}

// Dev returns the settings of development without flags or file.
func Dev() Config {
	s := Default()
	s.Development = true
	s.SourceList = nil
	s.State, s.Admin.Socket, s.XDS.Address, s.XDS.PlaintextAddress = DevState, "", "", DevXDS
	return s
}

// Read lays the file path over s. Check validates the result.
func Read(path string, s Config) (Config, error) {
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

// place returns where a setting is from: a flag, a line of the file, or file.
func (s *Config) place(setting, file string) string {
	return cmp.Or(s.Flags[setting], s.places.Of(setting), file)
}

// Check makes the mesh's Config, and returns all errors; file is where the settings are from.
func (s *Config) Check(file string) error {
	return errors.Join(s.checkMesh(file), s.checkOwn(file))
}

// checkOwn checks Ashore's own settings.
func (s *Config) checkOwn(file string) error {
	var errs []error
	wrong := func(setting, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s: %s", s.place(setting, file), setting, fmt.Sprintf(format, args...)))
	}
	s.checkServed(wrong)
	s.checkIdentity(wrong)
	if s.Webhook.Address != "" && !s.Secure() {
		wrong("webhook.address", "there is no certificate authority: set xds.address, or remove this")
	}
	s.checkMCP(wrong)
	for _, path := range []struct{ setting, value string }{{"state", s.State}, {"admin.socket", s.Admin.Socket}} {
		if path.value == "" {
			wrong(path.setting, "empty: name a path")
		}
	}
	s.checkStore(wrong)
	s.checkSources(wrong)
	s.checkMerge(wrong)
	if !dnsname.Valid(s.Domain) {
		wrong("domain", "%q is not the suffix of host names: want lower-case letters, digits, '-' and dots, as cluster.local",
			s.Domain)
	}
	if hclog.LevelFromString(s.Log.Level) == hclog.NoLevel || strings.EqualFold(s.Log.Level, "off") {
		wrong("log.level", "%q is not a level: want trace, debug, info, warn or error", s.Log.Level)
	}
	if s.Log.Format != "text" && s.Log.Format != "json" {
		wrong("log.format", "%q is not a format: want text or json", s.Log.Format)
	}
	return errors.Join(errs...)
}

// checkServed checks the addresses of listeners and the limit of connections.
func (s *Config) checkServed(wrong func(setting, format string, args ...any)) {
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

// inside reports whether path is dir or below it. Empty paths are reported elsewhere. A hidden
// folder does not count: configuration is not read from it.
func inside(path, dir string) bool {
	if path == "" || dir == "" {
		return false
	}
	rel, err := filepath.Rel(absolute(dir), absolute(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../") && (rel == "." || !strings.HasPrefix(rel, "."))
}

// absolute returns an absolute path, or path itself if the working folder was deleted.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// checkMesh reads mesh and meshNetworks.
func (s *Config) checkMesh(file string) error {
	section := &s.Mesh
	if section.IsZero() {
		section = nil
	}
	mesh, problems := config.ParseMesh(file, section)
	s.MeshConfig = &push.Mesh{Config: mesh, Domain: s.Domain}
	s.Warnings = nil
	var errs []error
	for _, p := range problems {
		if p.IsError() {
			errs = append(errs, errors.New(p.String()))
			continue
		}
		s.Warnings = append(s.Warnings, p)
	}
	return errors.Join(errs...)
}

// checkAddress wants host:port with a literal IP address or nothing before the colon.
func checkAddress(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is not an address: want HOST:PORT such as %s", s, DevXDS)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 && host == "" {
		return fmt.Errorf("%q is not a port of %q: want a number up to 65535", port, s)
	}
	if host != "" && net.ParseIP(host) == nil {
		return fmt.Errorf("%q of %q is not an IP address", host, s)
	}
	return nil
}

// Localhost is the name of no particular machine.
const Localhost = "localhost"

// MachineName returns the name of this machine, or Localhost if a certificate cannot contain it.
func MachineName() string {
	name, err := os.Hostname()
	if err != nil || !dnsname.Valid(strings.ToLower(name)) {
		return Localhost
	}
	return strings.ToLower(name)
}
