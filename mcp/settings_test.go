package mcp

import (
	"strings"
	"testing"
)

// Errors name the setting that is wrong.
func TestNew(t *testing.T) {
	t.Parallel()
	good := Config{Name: "mcp:galley", Address: "xds://istiod.test:15012", NodeID: "a"}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"good":              {func(*Config) {}, ""},
		"name":              {func(c *Config) { c.Name = "" }, "name:"},
		"address":           {func(c *Config) { c.Address = "istiod" }, "address:"},
		"address, port":     {func(c *Config) { c.Address = "istiod:1501000" }, `address: invalid port "1501000" in "istiod:1501000"`},
		"address, port 0":   {func(c *Config) { c.Address = "istiod:0" }, "address:"},
		"address, no host":  {func(c *Config) { c.Address = ":15012" }, "address:"},
		"plaintext, caFile": {func(c *Config) { c.Plaintext, c.CAFile = true, "ca.pem" }, "plaintext:"},
		"half a pair":       {func(c *Config) { c.CertFile = "cert.pem" }, "certFile:"},
		"kind":              {func(c *Config) { c.Kinds = []string{"Pod"} }, "kinds:"},
		"nodeID":            {func(c *Config) { c.NodeID = "a~b" }, "nodeID:"},
		"namespace":         {func(c *Config) { c.Namespace = "A" }, "namespace:"},
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
