package mcp

import (
	"strings"
	"testing"
	"time"
)

// Errors name the setting that is wrong.
func TestNew(t *testing.T) {
	t.Parallel()
	good := Config{Name: "galley", Address: "xds://istiod.test:15012", NodeID: "a"}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"good":              {func(*Config) {}, ""},
		"name":              {func(c *Config) { c.Name = "" }, "name:"},
		"protocol":          {func(c *Config) { c.Protocol = "mcp" }, "protocol:"},
		"address":           {func(c *Config) { c.Address = "istiod" }, "address:"},
		"address, port":     {func(c *Config) { c.Address = "istiod:1501000" }, `address: "1501000" is not a port of "istiod:1501000"`},
		"address, port 0":   {func(c *Config) { c.Address = "istiod:0" }, "address:"},
		"address, no host":  {func(c *Config) { c.Address = ":15012" }, "address:"},
		"plaintext, caFile": {func(c *Config) { c.Plaintext, c.CAFile = true, "ca.pem" }, "plaintext:"},
		"half a pair":       {func(c *Config) { c.CertFile = "cert.pem" }, "certFile:"},
		"peers of a client": {func(c *Config) { c.Peers = []string{"a"} }, "peers:"},
		"kind":              {func(c *Config) { c.Kinds = []string{"Pod"} }, "kinds:"},
		"kinds, older":      {func(c *Config) { c.Protocol, c.Kinds = ResourceSource, []string{"Gateway"} }, "kinds:"},
		"collections, xds":  {func(c *Config) { c.Collections = []string{"x"} }, "collections:"},
		"full, xds":         {func(c *Config) { c.Full = true }, "collections:"},
		"collection": {func(c *Config) {
			c.Protocol, c.Collections = ResourceSource, []string{"istio/rbac/v1alpha1/rbacconfigs"}
		}, "collections:"},
		"older collection": {func(c *Config) {
			c.Protocol, c.Collections = ResourceSource, []string{"istio/networking/v1alpha3/synthetic/serviceentries"}
		}, ""},
		"nodeID":            {func(c *Config) { c.NodeID = "a~b" }, "nodeID:"},
		"namespace":         {func(c *Config) { c.Namespace = "A" }, "namespace:"},
		"emptied":           {func(c *Config) { c.Emptied = "burn" }, "emptied: \"burn\": want keep or believe"},
		"emptyAfter":        {func(c *Config) { c.EmptyAfter = -time.Second }, "emptyAfter:"},
		"answerWait":        {func(c *Config) { c.AnswerWait = -time.Second }, "answerWait:"},
		"maxObjects":        {func(c *Config) { c.MaxObjects = -1 }, "maxObjects:"},
		"maxMessage":        {func(c *Config) { c.MaxMessage = 2 << 30 }, "maxMessage:"},
		"sink without TLS":  {func(c *Config) { c.Protocol = ResourceSink }, "caFile:"},
		"sink, anybody":     {func(c *Config) { c.Protocol, c.CAFile, c.CertFile, c.KeyFile = ResourceSink, "a", "b", "c" }, "peers:"},
		"sink, server name": {func(c *Config) { c.Protocol, c.ServerName = ResourceSink, "a" }, "serverName:"},
		"sink, plaintext":   {func(c *Config) { c.Protocol, c.Plaintext, c.Address = ResourceSink, true, ":9901" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := good
			c.change(&cfg)
			s, err := New(cfg)
			switch {
			case c.want == "" && (err != nil || s.Name() != "mcp:galley"):
				t.Errorf("got %v", err)
			case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)):
				t.Errorf("got %v, want %s…", err, c.want)
			}
		})
	}
}

// The waits grow from half a second to half a minute, and never beyond.
func TestBackoff(t *testing.T) {
	t.Parallel()
	var b backoff
	step := firstWait
	for range 20 {
		if d := b.next(); d < step/2 || d > step {
			t.Errorf("waits %s, want between %s and %s", d, step/2, step)
		}
		step = min(2*step, lastWait)
	}
	b.reset()
	if d := b.next(); d > firstWait {
		t.Errorf("waits %s after a good attempt", d)
	}
}
