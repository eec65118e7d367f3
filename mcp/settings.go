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

// Config holds the settings of one source. Zero values of all but Name and Address are the
// defaults.
type Config struct {
	// Name is the name in the settings; the source is named "mcp:<name>".
	Name string
	// Address is "host:port" of the server, also written "xds://host:port".
	Address string

	// Plaintext connects without TLS: anybody on the path can read and change the mesh's
	// configuration. Not together with TLS files.
	Plaintext bool
	// CAFile holds the authorities (PEM) that the server's certificate must be signed by. Default:
	// those that the machine trusts.
	CAFile string
	// CertFile and KeyFile are our client certificate and its key (PEM). Default: none. All files
	// are read again for each connection.
	CertFile, KeyFile string
	// ServerName is whom the certificate of the server must name. Default: the host of Address.
	ServerName string
	// Kinds are the kinds to subscribe to. Default: all of Istio's kinds.
	Kinds []string

	// NodeID is our name in the protocol. Default: the name of the machine.
	NodeID string
	// Namespace is our namespace in the protocol; a server may compare it with our certificate.
	// Default istio-system.
	Namespace string
	// Revision is the revision to ask for. Objects whose label istio.io/rev names another one are
	// left out. Default: all.
	Revision string

	// AnswerWait is how long a server may take to answer for all kinds after a connection. Default
	// 30s.
	AnswerWait time.Duration
	// MaxObjects limits the number of objects. Default 100,000.
	MaxObjects int
	// MaxMessage limits the bytes of one answer, and all objects together to four times that.
	// Default 128 MiB.
	MaxMessage int

	// Log receives connections and refusals; nil discards them.
	Log hclog.Logger
}

const (
	defaultWait    = 30 * time.Second
	defaultObjects = 100_000
	defaultMessage = 128 << 20
)

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	c.Address = strings.TrimPrefix(c.Address, "xds://")
	c.Namespace = cmp.Or(c.Namespace, "istio-system")
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

// machineName is the name of the machine, as part of a node ID.
func machineName() string {
	name, err := os.Hostname()
	if name, _, _ = strings.Cut(strings.ToLower(name), "."); err != nil || !label().MatchString(name) {
		return "ashored"
	}
	return name
}

// label matches a part of a node ID.
func label() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`) }

// check returns which setting is wrong.
func (c *Config) check() error {
	if c.Name == "" {
		return errors.New("name: it is missing")
	}
	if host, port, err := net.SplitHostPort(c.Address); err != nil || port == "" || host == "" {
		return fmt.Errorf("address: want host:port, such as istiod.example.com:15012, not %q", c.Address)
	} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("address: %q is not a port of %q: want a number from 1 to 65535", port, c.Address)
	}
	for _, check := range []func() error{c.checkTLS, c.checkKinds, c.checkNode, c.checkLimits} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkTLS() error {
	switch {
	case c.Plaintext && c.CAFile+c.CertFile+c.KeyFile+c.ServerName != "":
		return errors.New("plaintext: without TLS, caFile, certFile, keyFile and serverName have no effect: " +
			"remove one or the other")
	case (c.CertFile == "") != (c.KeyFile == ""):
		return errors.New("certFile: certFile and keyFile belong together")
	}
	return nil
}

func (c *Config) checkKinds() error {
	for _, k := range c.Kinds {
		if _, ok := config.Info(config.Kind(k)); !ok {
			return fmt.Errorf("kinds: %q is not a kind of Istio's API", k)
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
	case c.AnswerWait < 0:
		return errors.New("answerWait: want a time of more than zero")
	case c.MaxObjects < 0:
		return errors.New("maxObjects: want a number of more than zero")
	case c.MaxMessage < 0 || c.MaxMessage > 1<<30:
		return errors.New("maxMessage: want a number of bytes from 1 to 1 GiB")
	}
	return nil
}

// kinds are the kinds to subscribe to.
func (c *Config) kinds() []config.KindInfo {
	var out []config.KindInfo
	for _, i := range config.Kinds() {
		if len(c.Kinds) == 0 || slices.Contains(c.Kinds, string(i.Kind)) {
			out = append(out, i)
		}
	}
	return out
}
