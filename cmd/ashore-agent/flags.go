package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/internal/strictyaml"
)

// flags are the command line's settings. Their values are laid over the file's when they are given.
type flags struct {
	config string
	state  string // where a workload joined whose settings come first; empty: not known
	host   bool   // the settings are for a workload that units of this machine run
	over   []override
	set    *pflag.FlagSet
	places *strictyaml.Places // of the settings that are from a file; nil without one
}

// override puts one flag's value into the settings.
type override struct {
	setting string // its name in the file
	flag    string
	shown   string // the flag that it is from, when that is not this one
	apply   func(*agent.Settings)
}

func newFlags() *flags { return &flags{} }

// setting defines one flag for one setting: define is a method of the flag set, place finds the setting.
func setting[T any](f *flags, define func(*T, string, T, string), name, flag, help string, place func(*agent.Settings) *T) {
	defaults := agent.Default()
	value := new(T)
	define(value, flag, *place(&defaults), help)
	f.over = append(f.over, override{setting: name, flag: flag, apply: func(s *agent.Settings) { *place(s) = *value }})
}

// rename makes errors about a setting name another flag, by which it was given.
func (f *flags) rename(setting, flag string) {
	for i := range f.over {
		if f.over[i].setting == setting {
			f.over[i].shown = flag
		}
	}
}

// add defines the flags.
func (f *flags) add(fs *pflag.FlagSet) {
	f.set = fs
	fs.SortFlags = false
	fs.StringVar(&f.config, "config", "", "settings `file`; flags win over it")
	type s = agent.Settings
	setting(f, fs.BoolVar, "dev", "dev", "plaintext to the control plane, without an identity, for trials on one machine", func(s *s) *bool { return &s.Dev })
	setting(f, fs.StringSliceVar, "xds.addresses", "xds", "`host:port` of the control plane; several replicas with commas", func(s *s) *[]string { return &s.XDS.Addresses })
	setting(f, fs.StringVar, "workload.name", "name", "`name` of the workload, unique in its namespace (default: the host name)", func(s *s) *string { return &s.Workload.Name })
	setting(f, fs.StringVar, "workload.namespace", "namespace", "`namespace` of the workload", func(s *s) *string { return &s.Workload.Namespace })
	setting(f, fs.StringSliceVar, "workload.addresses", "address", "the workload's own IP `address`; the first is where Envoy opens its ports", func(s *s) *[]string { return &s.Workload.Addresses })
	setting(f, labelsVar(fs), "workload.labels", "labels", "the workload's `labels`, app=web,version=v1", func(s *s) *map[string]string { return &s.Workload.Labels })
	setting(f, fs.StringVar, "workload.serviceAccount", "service-account", "the workload's identity", func(s *s) *string { return &s.Workload.ServiceAccount })
	setting(f, fs.StringVar, "workload.type", "type", "sidecar or router (a gateway)", func(s *s) *string { return &s.Workload.Type })
	setting(f, fs.StringVar, "workload.locality", "locality", "`region/zone/subzone` of the machine", func(s *s) *string { return &s.Workload.Locality })
	setting(f, fs.StringVar, "workload.network", "network", "part of the network that the machine is in", func(s *s) *string { return &s.Workload.Network })
	setting(f, fs.StringVar, "workload.cluster", "cluster", "group of machines that this one belongs to", func(s *s) *string { return &s.Workload.Cluster })
	setting(f, fs.StringVar, "workload.interception", "interception", "how traffic reaches Envoy: none (applications connect to it), tproxy (by the rules of \"ashore-agent intercept\") or redirect (by rules of your own)", func(s *s) *string { return &s.Workload.Interception })
	setting(f, fs.IntVar, "workload.httpProxyPort", "http-proxy-port", "`port` where Envoy is an HTTP proxy into the mesh (0: as the mesh says)", func(s *s) *int { return &s.Workload.HTTPProxyPort })
	setting(f, fs.StringVar, "state", "state", "`folder` for the identity, the bootstrap and the sockets (default below /var/lib/ashore-agent; below ~/.local/state/ashore-agent for users other than root, with --dev below the user's cache folder)", func(s *s) *string { return &s.State })
	setting(f, fs.StringVar, "envoy.path", "envoy", "the Envoy `program` (default: envoy in PATH, else .tools/envoy)", func(s *s) *string { return &s.Envoy.Path })
	setting(f, fs.StringVar, "envoy.unit", "envoy-unit", "run Envoy as the systemd `unit` of this template, ashore-envoy (default: as a child of the agent)", func(s *s) *string { return &s.Envoy.Unit })
	setting(f, fs.IntVar, "envoy.concurrency", "concurrency", "Envoy's worker threads (0: one for each processor, at most 2)", func(s *s) *int { return &s.Envoy.Concurrency })
	setting(f, fs.StringVar, "envoy.logLevel", "envoy-log-level", "trace, debug, info, warning, error, critical or off", func(s *s) *string { return &s.Envoy.LogLevel })
	setting(f, fs.IntVar, "ports.status", "status-port", "`port` of the agent's readiness", func(s *s) *int { return &s.Ports.Status })
	setting(f, fs.IntVar, "ports.health", "health-port", "`port` of readiness through Envoy (0: none)", func(s *s) *int { return &s.Ports.Health })
	setting(f, fs.IntVar, "ports.metrics", "metrics-port", "`port` of Envoy's Prometheus metrics (0: none)", func(s *s) *int { return &s.Ports.Metrics })
	setting(f, fs.IntVar, "ports.admin", "admin-port", "`port` of Envoy's admin interface, open to every user of this machine (-1: a unix socket in the state folder; 0: that, with --dev 15000)", func(s *s) *int { return &s.Ports.Admin })
	setting(f, fs.IntVar, "ports.dns", "dns-port", "`port` where the agent answers DNS queries on a loopback address (0: none)", func(s *s) *int { return &s.Ports.DNS })
	setting(f, fs.BoolVar, "probe.allowGroupExec", "allow-group-exec", "the probe of the WorkloadGroup may run a command on this machine, as this user", func(s *s) *bool { return &s.Probe.AllowGroupExec })
	setting(f, fs.StringSliceVar, "probe.allowGroupHosts", "allow-group-hosts", "`hosts` beside this workload that the probe of the WorkloadGroup may ask", func(s *s) *[]string { return &s.Probe.AllowGroupHosts })
	setting(f, fs.DurationVar, "drain.leave", "drain-leave", "how long a registered workload goes on as before after it has left the endpoints", func(s *s) *time.Duration { return &s.Drain.Leave })
	setting(f, fs.DurationVar, "drain.maximum", "drain-maximum", "how long open connections are waited for", func(s *s) *time.Duration { return &s.Drain.Maximum })
	setting(f, fs.StringVar, "log.level", "log-level", "trace, debug, info, warn or error", func(s *s) *string { return &s.Log.Level })
	setting(f, fs.StringVar, "log.format", "log-format", "text or json", func(s *s) *string { return &s.Log.Format })
}

// settings are the defaults, those that the workload joined with, the file's settings over them, and the given flags over
// those; checked.
func (f *flags) settings() (agent.Settings, error) {
	s, err := f.read()
	if err != nil {
		return s, err
	}
	return s, f.explain(s.Complete())
}

// read is settings without the check.
func (f *flags) read() (agent.Settings, error) {
	s := agent.Default()
	if f.host {
		s.Workload.Interception = "tproxy"
	}
	if err := f.readOwn(&s); err != nil {
		return s, err
	}
	if file := f.file(); file != "" {
		data, err := strictyaml.ReadFile(file)
		if err != nil {
			return s, usage(fmt.Errorf("%w (--config)", err))
		}
		if f.places, err = strictyaml.Decode(file, data, &s); err != nil {
			return s, usage(err)
		}
	}
	for _, o := range f.over {
		if f.set.Changed(o.flag) {
			o.apply(&s)
		}
	}
	return s, nil
}

// operatorFile has the operator's settings for workloads that units of this machine run.
const operatorFile = "/etc/ashore/agent.yaml"

// file is the settings file; empty: there is none.
func (f *flags) file() string {
	if f.config != "" || !f.host && filepath.Dir(f.state) != agent.PackagedState {
		return f.config
	}
	if _, err := os.Lstat(operatorFile); err != nil {
		return ""
	}
	return operatorFile
}

// readOwn lays the settings that the workload joined with over s, and names its state folder.
func (f *flags) readOwn(s *agent.Settings) error {
	if f.state == "" {
		return nil
	}
	file := agent.OwnSettings(f.state)
	data, err := strictyaml.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it did not join
	}
	if err != nil {
		return usage(err)
	}
	if _, err := strictyaml.Decode(file, data, s); err != nil {
		return usage(err)
	}
	s.State = f.state
	return nil
}

// joined finds the workload that is meant when nothing on the command line describes another one.
func (f *flags) joined() error {
	given := func(name string) (string, bool) {
		flag := f.set.Lookup(name)
		return flag.Value.String(), flag.Changed
	}
	if state, ok := given("state"); ok {
		f.state = state
		return nil
	}
	if _, dev := given("dev"); dev || f.config != "" || f.set.Changed("xds") {
		return nil
	}
	name, _ := given("name")
	namespace, ok := given("namespace")
	if !ok {
		namespace = ""
	}
	state, err := agent.FindJoined(name, namespace)
	if errors.Is(err, agent.ErrNoIdentity) && f.set.NFlag() > 0 {
		return nil // what is missing is said by name
	}
	f.state = state
	return err
}

// explain adds the flags to errors about settings, and makes them errors of usage.
func (f *flags) explain(err error) error {
	if _, ok := errors.AsType[*agent.UsageError](err); !ok {
		return err
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	var out []error
	for _, e := range all {
		if u, ok := errors.AsType[*agent.UsageError](e); ok {
			e = f.withFlag(u)
		}
		out = append(out, e)
	}
	return usage(errors.Join(out...))
}

// withFlag names the flag beside the setting, and the place of the setting in the file unless the flag was given.
func (f *flags) withFlag(u *agent.UsageError) error {
	name, from := u.Setting, f.places.Of(u.Setting)
	for _, o := range f.over {
		if o.setting == u.Setting {
			flag := cmp.Or(o.shown, o.flag)
			name += " (--" + flag + ")"
			if f.set.Changed(flag) {
				from = ""
			}
		}
	}
	if from != "" {
		name = from + ": " + name
	}
	return &agent.UsageError{Setting: name, Text: u.Text}
}
