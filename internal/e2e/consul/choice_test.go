package consul

import (
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/registry/consul"
)

func tagged(tags ...string) func(*api.AgentService) {
	return func(s *api.AgentService) { s.Tags = tags }
}

func said(pairs ...string) func(*api.AgentService) {
	return func(s *api.AgentService) {
		s.Meta = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			s.Meta[pairs[i]] = pairs[i+1]
		}
	}
}

// Consul accepts the expressions of filters, and an instance that no longer matches is removed.
func TestFilters(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, nil)
	c := newCatalog(t, a, "")
	const odd = `a"b\c` + "\t" + `é`
	c.put("web-1", "10.0.0.1", 80, "passing", tagged("mesh", odd), said("team", odd))
	c.put("web-2", "10.0.0.2", 80, "passing", tagged("mesh"), said("team", odd))
	c.put("web-3", "10.0.0.3", 80, "passing", tagged("mesh", odd), said("team", "other"))
	c.put("api-1", "10.0.0.4", 80, "passing", tagged("mesh"))
	c.put("db-1", "10.0.0.5", 80, "passing", tagged("mesh", odd), said("team", odd))
	c.put("stays-1", "10.0.0.6", 80, "passing", tagged("mesh", odd), said("team", odd)) // losing all would be a mass removal
	for _, w := range ways() {
		o := w.options(a)
		o.Tags, o.Metadata, o.Except = []string{"mesh", odd}, map[string]string{"team": odd}, []string{"d*"}
		o.Filter = `Service.Port == 80 and Node.Node != "x"`
		v := follow(t, o)
		v.has(t, "web.service.consul", "10.0.0.1:80 healthy")
		v.synced(t)
		for _, host := range []string{"api.service.consul", "db.service.consul", "consul.service.consul"} {
			if v.knows(host) {
				t.Errorf("%s: %s is known", w.name, host)
			}
		}
		c.put("web-1", "10.0.0.1", 80, "passing", tagged("mesh"))
		v.until(t, "web is gone", func() bool { return v.endpoints("web.service.consul") == nil })
		c.put("web-1", "10.0.0.1", 80, "passing", tagged("mesh", odd), said("team", odd))
		v.has(t, "web.service.consul", "10.0.0.1:80 healthy")
	}
}

// A wrong expression is a problem that names the option.
func TestWrongFilter(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, nil)
	c := newCatalog(t, a, "")
	c.put("web-1", "10.0.0.1", 80, "passing")
	v := follow(t, consul.Options{Address: "http://" + a.Address, Filter: "Service.Nonsense == 1"})
	v.wantProblem(t, `correct the option filter, "Service.Nonsense == 1"`)
}

// Each way to read sees changes.
func TestReads(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, nil)
	c := newCatalog(t, a, "")
	c.put("web-1", "10.0.0.1", 80, "passing")
	c.others()
	for _, reads := range []string{"default", "stale"} {
		for _, w := range ways() {
			o := w.options(a)
			o.Reads = reads
			v := follow(t, o)
			v.has(t, "web.service.consul", "10.0.0.1:80 healthy")
			c.health("web-1", "critical")
			v.has(t, "web.service.consul", "10.0.0.1:80 unhealthy")
			c.health("web-1", "passing")
			v.has(t, "web.service.consul", "10.0.0.1:80 healthy")
			c.put("web-2", "10.0.0.2", 80, "passing")
			v.has(t, "web.service.consul", "10.0.0.1:80 healthy", "10.0.0.2:80 healthy")
			c.remove("web-2")
			v.has(t, "web.service.consul", "10.0.0.1:80 healthy")
		}
	}
}

// Services of other datacenters are called by their datacenter; an outage of one takes nothing
// away.
func TestDatacenters(t *testing.T) {
	t.Parallel()
	one := testconsul.Start(t, nil)
	two := testconsul.Start(t, map[string]any{"datacenter": "dc2", "retry_join_wan": []string{one.WAN}})
	c1, c2 := newCatalog(t, one, ""), newCatalog(t, two, "")
	c1.put("web-1", "10.0.0.1", 80, "passing")
	c2.put("web-1", "10.2.0.1", 80, "passing")
	c2.put("db-1", "10.2.0.2", 5432, "passing")
	follows := map[string]*view{
		"all":   follow(t, consul.Options{Address: "http://" + one.Address, Datacenters: []string{"dc1", "dc2"}}),
		"own":   follow(t, consul.Options{Address: "http://" + one.Address}),
		"other": follow(t, consul.Options{Address: "https://" + one.Secure, TLS: consul.TLSOptions{CAFile: one.CAFile}, Datacenters: []string{"dc2"}}),
	}
	for name, v := range follows {
		if name != "other" {
			v.has(t, "web.service.consul", "10.0.0.1:80 healthy")
			v.has(t, "web.service.dc1.consul", "10.0.0.1:80 healthy")
		}
		if name != "own" {
			v.has(t, "web.service.dc2.consul", "10.2.0.1:80 healthy")
			v.has(t, "db.service.dc2.consul", "10.2.0.2:5432 healthy")
		}
	}
	c2.health("db-1", "critical")
	follows["all"].has(t, "db.service.dc2.consul", "10.2.0.2:5432 unhealthy")
	follows["other"].has(t, "db.service.dc2.consul", "10.2.0.2:5432 unhealthy")
	two.Kill()
	c1.health("web-1", "critical")
	follows["all"].has(t, "web.service.consul", "10.0.0.1:80 unhealthy")
	follows["all"].has(t, "web.service.dc2.consul", "10.2.0.1:80 healthy")
	follows["all"].wantProblem(t, "(datacenter dc2)")
	follows["all"].inTouch(t)
	two.Start()
	c2.health("db-1", "passing")
	follows["all"].has(t, "db.service.dc2.consul", "10.2.0.2:5432 healthy")
	follows["all"].wantProblem(t, "")
}

// A name that is not a DNS label is a problem. A sidecar of Consul's own mesh is not a service.
func TestNamesAndSidecars(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, map[string]any{"connect": map[string]any{"enabled": true}})
	c := newCatalog(t, a, "")
	agent := c.c.Agent()
	err := agent.ServiceRegister(&api.AgentServiceRegistration{Name: "web", Address: "10.0.0.1", Port: 80,
		Connect: &api.AgentServiceConnect{SidecarService: &api.AgentServiceRegistration{Port: 21000}}})
	if err != nil {
		t.Fatal(err)
	}
	c.put("my_db-1", "10.0.0.2", 80, "passing")
	v := follow(t, consul.Options{Address: "http://" + a.Address})
	v.has(t, "web.service.consul", "10.0.0.1:80 healthy")
	v.until(t, "a problem", func() bool {
		for _, p := range v.merged.Problems(describe) {
			if p.Object == "Consul service my_db" {
				return true
			}
		}
		return false
	})
	if v.knows("web-sidecar-proxy.service.consul") {
		t.Error("a sidecar of Consul's is a service")
	}
}

// Only the configured CA is trusted, and a client certificate is presented.
func TestTLS(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, map[string]any{testconsul.VerifyClients: true})
	stranger := testconsul.New(t, nil)
	c := newCatalog(t, a, "")
	c.put("web-1", "10.0.0.1", 80, "passing")
	whole := consul.TLSOptions{CAFile: a.CAFile, CertFile: a.CertFile, KeyFile: a.KeyFile}
	for _, tc := range []struct {
		name, want string
		edit       func(*consul.TLSOptions)
	}{
		{"well", "", func(*consul.TLSOptions) {}},
		{"by another name of it", "", func(o *consul.TLSOptions) { o.ServerName = "server.dc1.consul" }},
		{"a name that it has not", "server.dc2.consul", func(o *consul.TLSOptions) { o.ServerName = "server.dc2.consul" }},
		{"another authority", "signed by unknown authority", func(o *consul.TLSOptions) { o.CAFile = stranger.CAFile }},
		{"no file", "tls.caFile", func(o *consul.TLSOptions) { o.CAFile = "/there/is/none" }},
		{"no certificate of its own", "certificate required", func(o *consul.TLSOptions) { o.CertFile, o.KeyFile = "", "" }},
		{"a stranger's certificate", "unknown certificate authority", func(o *consul.TLSOptions) { o.CertFile, o.KeyFile = stranger.CertFile, stranger.KeyFile }},
		{"a key of another certificate", "tls.certFile", func(o *consul.TLSOptions) { o.KeyFile = stranger.KeyFile }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := whole
			tc.edit(&o)
			v := follow(t, consul.Options{Address: "https://" + a.Secure, TLS: o})
			if tc.want == "" {
				v.has(t, "web.service.consul", "10.0.0.1:80 healthy")
				return
			}
			v.wantProblem(t, tc.want)
			if v.isSynced() {
				t.Error("a full batch of nobody")
			}
		})
	}
}
