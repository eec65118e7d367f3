package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/dnsname"
)

// Config holds the settings of one source. Name and Address are required. A zero value of any other
// field is its default.
type Config struct {
	// Name is the name of the source: "mcp", or "mcp:" and a name.
	Name string
	// Address is "host:port" of the server, also written "xds://host:port".
	Address string

	// Plaintext connects without TLS: anyone on the network path can read and change the
	// configuration. It excludes CAFile, CertFile, KeyFile and ServerName.
	Plaintext bool
	// CAFile holds the authorities (PEM) that verify the server's certificate. Default: those that
	// the machine trusts.
	CAFile string
	// CertFile and KeyFile hold the client certificate and its key (PEM). Default: none. All files
	// are read again for each connection.
	CertFile, KeyFile string
	// ServerName is the DNS name that the server certificate must have. Default: the host of Address.
	ServerName string
	// Kinds are the kinds to subscribe to. Default: all of Istio's kinds.
	Kinds []string

	// NodeID is the name in the node ID of requests. Default: the host name, or "ashored" if that is
	// not a DNS label.
	NodeID string
	// Namespace is the namespace in the node ID. The server may compare it with the client
	// certificate. Default istio-system.
	Namespace string
	// Revision is the revision to request. Objects whose label istio.io/rev names another one are
	// ignored. Default: all.
	Revision string

	// The limits are not settings: tests set them.

	// AnswerWait is how long the server may take for the first responses for all kinds. Then the
	// source connects again. Default 30s.
	AnswerWait time.Duration
	// MaxObjects limits the number of objects. Default 100,000.
	MaxObjects int
	// MaxMessage limits the size of one response in bytes. All objects together may have four times
	// as many. Default 128 MiB.
	MaxMessage int

	// Log receives new connections and rejected objects. Nil discards them.
	Log hclog.Logger
}

const (
	defaultWait    = 30 * time.Second
	defaultObjects = 100_000
	defaultMessage = 128 << 20
)

// withDefaults replaces zero values by defaults.
func (c Config) withDefaults() Config {
	c.Address = strings.TrimPrefix(c.Address, "xds://")
	c.Namespace = cmp.Or(c.Namespace, "istio-system")
	c.AnswerWait = cmp.Or(c.AnswerWait, defaultWait)
	c.MaxObjects = cmp.Or(c.MaxObjects, defaultObjects)
	c.MaxMessage = cmp.Or(c.MaxMessage, defaultMessage)
	if c.NodeID == "" {
		c.NodeID = hostLabel()
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	return c
}

// hostLabel returns the first label of the host name, or "ashored" if it is not a DNS label.
func hostLabel() string {
	name, err := os.Hostname()
	if name, _, _ = strings.Cut(strings.ToLower(name), "."); err != nil || !dnsname.ValidLabel(name) {
		return "ashored"
	}
	return name
}

// check returns an error for the first invalid setting.
func (c *Config) check() error {
	if c.Name == "" {
		return errors.New("name: required")
	}
	if host, port, err := net.SplitHostPort(c.Address); err != nil || port == "" || host == "" {
		return fmt.Errorf("address: want host:port, such as istiod.example.com:15012, not %q", c.Address)
	} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("address: invalid port %q in %q: want a number from 1 to 65535", port, c.Address)
	}
	for _, check := range []func() error{c.checkTLS, c.checkKinds, c.checkNode} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkTLS() error {
	switch {
	case c.Plaintext && c.CAFile+c.CertFile+c.KeyFile+c.ServerName != "":
		return errors.New("plaintext: cannot be combined with caFile, certFile, keyFile or serverName")
	case (c.CertFile == "") != (c.KeyFile == ""):
		return errors.New("certFile: set both certFile and keyFile, or neither")
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
	for setting, value := range map[string]string{"nodeID": c.NodeID, "namespace": c.Namespace} {
		if !dnsname.ValidLabel(value) {
			return fmt.Errorf("%s: want a DNS label (lower-case letters, digits and \"-\", at most 63 characters), not %q",
				setting, value)
		}
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
