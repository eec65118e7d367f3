package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/strictyaml"
	"github.com/ashore-mesh/ashore/mcp"
	"github.com/ashore-mesh/ashore/push"
)

const (
	DefaultFile  = "/etc/ashore/ashored.yaml"
	defaultFiles = "/etc/ashore/config"
	devXDS       = "127.0.0.1:15010"
	devState     = ".ashore"
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
	// Webhook is validation over HTTPS.
	Webhook Webhook `yaml:"webhook"`
	// Merge configures services that several sources have.
	Merge Merge `yaml:"merge"`
	// MCP selects the other control planes that may read the configuration.
	MCP MCP `yaml:"mcp"`
	// Secrets are the certificates and keys that credentialName names.
	Secrets Secrets `yaml:"secrets"`
	// Fetch limits from where keys of issuers are fetched.
	Fetch Fetch `yaml:"fetch"`
	// Mesh is Istio's MeshConfig.
	Mesh yaml.Node `yaml:"mesh"`
	// MeshNetworks is the path of a file with Istio's MeshNetworks. Default: none.
	MeshNetworks string `yaml:"meshNetworks"`

	SourceList  []Source       // made of Sources
	MeshConfig  *push.Mesh     // made of Mesh
	Warnings    []feed.Problem // about it
	Access      admin.Access   // made of Admin.Roles
	FetchConfig jwks.Config    // made of Fetch
	MCPReaders  mcp.Readers    // made of MCP.Readers

	Development bool // set by --dev

	places *strictyaml.Places // where settings were read
}

// Merge configures services that several sources have.
type Merge struct {
	// Endpoints is unite (those of all sources) or shadow (those of the first source that has any).
	// Default unite.
	Endpoints string `yaml:"endpoints"`
}

const unite, shadow = "unite", "shadow"

// Shadows reports whether only the endpoints of the first source that has any are used.
func (m Merge) Shadows() bool { return m.Endpoints == shadow }

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
}

type Metrics struct {
	// Address serves metrics, health and readiness over HTTP. Default 127.0.0.1:15014.
	Address string `yaml:"address"`
	// TargetsTokenFile is a file with the bearer token for /prometheus/targets, which lists what
	// Prometheus can scrape. Default: none, and the list is not served.
	TargetsTokenFile string `yaml:"targetsTokenFile"`
	// Prometheus is the URL of a Prometheus that scrapes the mesh, for "ashorectl top". Default: none.
	Prometheus string `yaml:"prometheus"`
}

type Admin struct {
	// Socket is the unix socket of the admin API. Default /run/ashore/admin.sock; admin.sock in the
	// state folder in development.
	Socket string `yaml:"socket"`
	// Roles are those of groups. Root and the user that ashored runs as are admins. Default: none.
	Roles admin.Roles `yaml:"roles"`
}

type Log struct {
	// Level is trace, debug, info, warn or error. Default info.
	Level string `yaml:"level"`
	// Format is text or json. Default text.
	Format string `yaml:"format"`
}

type Secrets struct {
	// Dir has the files NAMESPACE/NAME/{tls.crt,tls.key,ca.crt,ca.crl}, which take precedence over the
	// secrets of the store. Default: none.
	Dir string `yaml:"dir"`
	// Kubernetes is the name of a source of kind kubernetes, whose Secrets gateways get if the cluster
	// allows their service accounts to list them. Default: none.
	Kubernetes string `yaml:"kubernetes"`
}

// Default returns the settings of an empty file.
func Default() Config {
	return Config{
		State:      "/var/lib/ashore",
		Store:      defaultStore(),
		SourceList: DefaultSources(defaultFiles),
		Domain:     "cluster.local",
		Merge:      Merge{Endpoints: unite},
		XDS:        XDS{Address: ":15012"},
		Metrics:    Metrics{Address: "127.0.0.1:15014"},
		Admin:      Admin{Socket: "/run/ashore/admin.sock"},
		Log:        Log{Level: "info", Format: "text"},
		CA:         CA{Validity: 24 * time.Hour, Grace: ca.DefaultGrace},
	}
}

// Flags are the flags of the command line.
type Flags struct {
	// File is the settings file. Default: DefaultFile; none in development.
	File string
	// Set overrides settings of the file: SETTING=VALUE, with a value in YAML.
	Set []string
	// Dev selects the defaults of development.
	Dev bool
	// Files is the folder of configuration in development. It replaces the setting sources.
	Files string
}

// Read returns the settings. The error joins one for each setting that is wrong.
func Read(f Flags) (Config, error) {
	s := Default()
	s.Development = f.Dev
	switch {
	case f.Dev:
		s.SourceList = nil
		s.State, s.Admin.Socket, s.XDS.Address, s.XDS.PlaintextAddress = devState, "", "", devXDS
	case f.Files != "":
		return s, errors.New("--files is for --dev: otherwise write \"sources\" in the settings file")
	default:
		f.File = cmp.Or(f.File, DefaultFile)
	}
	if err := s.read(f); err != nil {
		return s, err
	}
	if f.Files != "" {
		s.SourceList = DefaultSources(f.Files)
	}
	if len(s.SourceList) == 0 {
		return s, errors.New("--dev needs --files DIR, the folder of configuration to serve")
	}
	s.Admin.Socket = cmp.Or(s.Admin.Socket, filepath.Join(s.State, "admin.sock"))
	return s, s.check()
}

// read lays the file and the overrides over the defaults.
func (s *Config) read(f Flags) error {
	s.places = &strictyaml.Places{}
	if f.File != "" {
		data, err := strictyaml.ReadFile(f.File)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("there is no settings file %s: write one, name another with --config, or start with --dev",
				f.File)
		case err != nil:
			return err
		}
		if s.places, err = strictyaml.Decode(f.File, data, s); err != nil {
			return err
		}
	}
	for _, text := range f.Set {
		setting, value, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("--set %s: want SETTING=VALUE, such as log.level=debug", text)
		}
		if err := s.places.Set("--set", setting, value, s); err != nil {
			return err
		}
	}
	return s.readSources()
}

// report reports a wrong setting.
type report func(setting, format string, args ...any)

// seen are names that have to be unique.
type seen map[string]bool

// again adds a name, and reports whether it was there.
func (s seen) again(name string) bool {
	was := s[name]
	s[name] = true
	return was
}

// check makes the mesh's Config, and returns all errors.
func (s *Config) check() error {
	var errs []error
	wrong := func(setting, format string, args ...any) {
		err := fmt.Errorf("%s: %s", setting, fmt.Sprintf(format, args...))
		if place := s.places.Of(setting); place != "" {
			err = fmt.Errorf("%s: %w", place, err)
		}
		errs = append(errs, err)
	}
	meshErr := s.checkMesh(wrong)
	level := hclog.LevelFromString(s.Log.Level)
	for _, c := range []struct {
		setting string
		right   bool
		want    string
	}{
		{"state", s.State != "", "a path"},
		{"domain", dnsname.Valid(s.Domain), "a suffix of host names such as cluster.local, in lower case"},
		{"xds.address", s.XDS.Address+s.XDS.PlaintextAddress != "", "an address here or in xds.plaintextAddress"},
		{"metrics.address", s.Metrics.Address != "", "an address such as 127.0.0.1:15014"},
		{"metrics.prometheus", s.Metrics.Prometheus == "" || strings.HasPrefix(s.Metrics.Prometheus, "http"),
			"a URL such as http://127.0.0.1:9090"},
		{"log.level", level != hclog.NoLevel && level != hclog.Off, "trace, debug, info, warn or error"},
		{"log.format", s.Log.Format == "text" || s.Log.Format == "json", "text or json"},
		{"merge.endpoints", s.Merge.Endpoints == unite || s.Merge.Endpoints == shadow, "unite or shadow"},
		{"ca.validity", s.CA.Validity >= time.Minute, "1m or more, such as 24h"},
		{"webhook.address", s.Webhook.Address == "" || s.Secure(), "none without xds.address, whose certificate it shows"},
		{"attestors.jwt", len(s.Attestors.JWT) == 0 || s.Secure(), "none without xds.address, where tokens are shown"},
	} {
		if !c.right {
			wrong(c.setting, "want %s", c.want)
		}
	}
	s.checkIdentity(wrong)
	s.checkMCP(wrong)
	s.checkStore(wrong)
	s.checkSources(wrong)
	return errors.Join(append(errs, meshErr)...)
}

// checkMesh reads mesh and meshNetworks.
func (s *Config) checkMesh(wrong report) error {
	section := &s.Mesh
	if section.IsZero() {
		section = nil
	}
	mesh, problems := config.ParseMesh(s.places.File(), section)
	s.MeshConfig = &push.Mesh{Config: mesh, Domain: s.Domain}
	if s.MeshNetworks != "" {
		problems = append(problems, s.readNetworks(wrong)...)
	}
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

// readNetworks reads the file of meshNetworks.
func (s *Config) readNetworks(wrong report) []feed.Problem {
	data, _, err := readfile.Read(s.MeshNetworks, config.MaxFileSize)
	if err != nil {
		wrong("meshNetworks", "%v", err)
		return nil
	}
	networks, problems := config.ParseNetworks(s.MeshNetworks, data)
	for _, n := range networks.Networks {
		for _, e := range n.Endpoints {
			name := e.GetFromRegistry()
			if name != "" && !s.hasSource(name, consulKind) && !s.hasSource(name, kubernetesKind) {
				wrong("meshNetworks", "fromRegistry: %q is not the name of a source of kind consul or kubernetes", name)
			}
		}
	}
	s.MeshConfig.Networks = push.NewNetworks(networks)
	return problems
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
