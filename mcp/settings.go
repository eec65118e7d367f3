package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
)

// The protocols of a source.
const (
	// XDS is MCP over xDS: differences where the server can send them, state of the world where it cannot.
	XDS = "xds"
	// XDSDelta and XDSState are one of the two alone.
	XDSDelta = "xds-delta"
	XDSState = "xds-state"
	// ResourceSource is the older protocol, of a server that we call.
	ResourceSource = "resource-source"
	// ResourceSink is the older protocol, of a source that calls us.
	ResourceSink = "resource-sink"
)

// Protocols are all of them.
func Protocols() []string { return []string{XDS, XDSDelta, XDSState, ResourceSource, ResourceSink} }

// What is made of a server that has lost everything.
const (
	Keep    = "keep"
	Believe = "believe"
)

// Config is what the settings say of one source. Zero values of all but Name and Address are the defaults.
type Config struct {
	// Name is that of the source in the settings; it is called "mcp:<name>".
	Name string
	// Protocol is one of Protocols. Default xds.
	Protocol string
	// Address is "host:port" of the server, also written "xds://host:port"; of resource-sink it is where we listen.
	Address string

	// Plaintext does without TLS: whoever is on the way reads and writes the mesh's configuration. Not together with files
	// of TLS.
	Plaintext bool
	// CAFile holds the authorities (PEM) of which one must have signed the certificate of the other side. Default: those
	// that the machine trusts; resource-sink needs it.
	CAFile string
	// CertFile and KeyFile are the certificate that we show, and its key (PEM). Default: none; resource-sink needs them.
	// All files are read again for each connection.
	CertFile, KeyFile string
	// ServerName is whom the certificate of the server must name. Default: the host of Address.
	ServerName string
	// Peers are the names of which the certificate of a caller of resource-sink must have one: URIs
	// ("spiffe://cluster.local/ns/istio-system/sa/galley") or DNS names. An authority that signs for others too says
	// too little.
	Peers []string

	// Kinds are what is asked for over xDS. Default: all of Istio's kinds.
	Kinds []string
	// Collections are what is asked for in the older protocol. Default: those of Istio 1.8.
	Collections []string
	// Full has the older protocol send every collection whole at each change, for servers whose differences are wrong.
	Full bool

	// NodeID is what we are called in the protocol. Default: the name of the machine.
	NodeID string
	// Namespace is where we say to be; a server may want our certificate to agree. Default istio-system.
	Namespace string
	// Revision, when not empty, is asked for, and leaves out objects whose label istio.io/rev names another one.
	Revision string

	// Emptied is what is made of a server that comes back without any object at all: Keep (what it listed before stays until it
	// lists something again) or Believe (it goes after EmptyAfter). Default keep.
	Emptied string
	// EmptyAfter is how long a server that comes back without an object that it had before has to stand by that before it is
	// believed, where its answer does not say that it is whole: without any of a kind, or with fewer in the first answer of
	// differences, which may go on; and so one that has nothing at all at the first start. Default 30s.
	EmptyAfter time.Duration
	// AnswerWait is how long a server may take for its first answer about every kind. Default 30s.
	AnswerWait time.Duration
	// MaxObjects is how many objects the source may hold. Default 100,000.
	MaxObjects int
	// MaxMessage is how many bytes one answer may have, and a quarter of what all objects may have. Default 128 MiB.
	MaxMessage int

	// Log is told of connections and refusals; nil discards.
	Log hclog.Logger
}

const (
	defaultWait    = 30 * time.Second
	defaultObjects = 100_000
	defaultMessage = 128 << 20
)

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	c.Protocol = cmp.Or(c.Protocol, XDS)
	c.Address = strings.TrimPrefix(c.Address, "xds://")
	c.Namespace = cmp.Or(c.Namespace, "istio-system")
	c.Emptied = cmp.Or(c.Emptied, Keep)
	c.EmptyAfter = cmp.Or(c.EmptyAfter, defaultWait)
	c.AnswerWait = cmp.Or(c.AnswerWait, defaultWait)
	c.MaxObjects = cmp.Or(c.MaxObjects, defaultObjects)
	c.MaxMessage = cmp.Or(c.MaxMessage, defaultMessage)
	if c.NodeID == "" {
		c.NodeID = machineName()
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	return c
}

// machineName is the name of the machine as a part of a node's name.
func machineName() string {
	name, err := os.Hostname()
	if name, _, _ = strings.Cut(strings.ToLower(name), "."); err != nil || !label().MatchString(name) {
		return "ashored"
	}
	return name
}

// label is what a part of a node's name may be.
func label() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`) }

// legacy says that the older protocol is spoken.
func (c *Config) legacy() bool { return c.Protocol == ResourceSource || c.Protocol == ResourceSink }

// check says what is wrong, in the words of the settings.
func (c *Config) check() error {
	if c.Name == "" {
		return errors.New("name: it is missing")
	}
	if !slices.Contains(Protocols(), c.Protocol) {
		return fmt.Errorf("protocol: %q is none of %s", c.Protocol, strings.Join(Protocols(), ", "))
	}
	if host, port, err := net.SplitHostPort(c.Address); err != nil || port == "" || host == "" && c.Protocol != ResourceSink {
		return fmt.Errorf("address: want host:port, such as istiod.example.com:15012, not %q", c.Address)
	} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("address: %q is not a port of %q: want a number from 1 to 65535", port, c.Address)
	}
	for _, check := range []func() error{c.checkTLS, c.checkWanted, c.checkNode, c.checkLimits} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkTLS() error {
	sink := c.Protocol == ResourceSink
	switch {
	case c.Plaintext && c.CAFile+c.CertFile+c.KeyFile+c.ServerName != "":
		return errors.New("plaintext: without TLS, caFile, certFile, keyFile and serverName have no effect: remove one or the other")
	case (c.CertFile == "") != (c.KeyFile == ""):
		return errors.New("certFile: certFile and keyFile belong together")
	case c.ServerName != "" && sink:
		return errors.New("serverName: with resource-sink we are the server: name the callers in peers")
	case len(c.Peers) > 0 && (!sink || c.Plaintext):
		return errors.New("peers: only with resource-sink and TLS do others call us and prove who they are")
	case sink && !c.Plaintext && (c.CAFile == "" || c.CertFile == ""):
		return errors.New("caFile: resource-sink needs caFile, certFile and keyFile, or plaintext: true")
	case sink && !c.Plaintext && len(c.Peers) == 0:
		return errors.New("peers: it is missing: name who may call, as in the URI or DNS names of its certificate")
	}
	return nil
}

// mostNamed is how many resources one answer may name. One too many objects is told as such, more are not read.
func (c *Config) mostNamed() int { return max(2*c.MaxObjects, 1000) }

// checkWanted checks what is asked for.
func (c *Config) checkWanted() error {
	if c.legacy() {
		if len(c.Kinds) > 0 {
			return fmt.Errorf("kinds: %s asks for collections: name them in collections", c.Protocol)
		}
		if _, unknown := collectionsOf(c.Collections); unknown != "" {
			return fmt.Errorf("collections: %q is no collection of a kind that Ashore reads", unknown)
		}
		return nil
	}
	if len(c.Collections) > 0 || c.Full {
		return fmt.Errorf("collections: %s asks for kinds: collections and full belong to resource-source and resource-sink", c.Protocol)
	}
	for _, k := range c.Kinds {
		if _, ok := config.Info(config.Kind(k)); !ok {
			return fmt.Errorf("kinds: %q is no kind of Istio's API", k)
		}
	}
	return nil
}

func (c *Config) checkNode() error {
	if !label().MatchString(c.NodeID) {
		return fmt.Errorf("nodeID: want lower-case letters, digits and \"-\", not %q", c.NodeID)
	}
	if !label().MatchString(c.Namespace) {
		return fmt.Errorf("namespace: want lower-case letters, digits and \"-\", not %q", c.Namespace)
	}
	return nil
}

func (c *Config) checkLimits() error {
	switch {
	case c.Emptied != Keep && c.Emptied != Believe:
		return fmt.Errorf("emptied: %q: want %s or %s", c.Emptied, Keep, Believe)
	case c.EmptyAfter < 0:
		return errors.New("emptyAfter: want a time of zero or more")
	case c.AnswerWait < 0:
		return errors.New("answerWait: want a time of more than zero")
	case c.MaxObjects < 0:
		return errors.New("maxObjects: want a number of more than zero")
	case c.MaxMessage < 0 || c.MaxMessage > 1<<30:
		return errors.New("maxMessage: want a number of bytes from 1 to 1 GiB")
	}
	return nil
}

// kinds are those to ask for over xDS.
func (c *Config) kinds() []config.KindInfo {
	var out []config.KindInfo
	for _, i := range config.Kinds() {
		if len(c.Kinds) == 0 || slices.Contains(c.Kinds, string(i.Kind)) {
			out = append(out, i)
		}
	}
	return out
}
