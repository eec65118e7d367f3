package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/internal/strictyaml"
)

// flags are the settings that a command line names. They win over those of files.
type flags struct {
	config string
	state  string   // where a workload joined whose settings come first; empty: not known
	host   bool     // the settings are for a workload that units of this machine run
	set    []string // of --set
	labels map[string]string
	given  *pflag.FlagSet
	sets   map[string]bool    // the settings that the command line names
	places *strictyaml.Places // of the settings that are from a file; nil without one
}

// flagSettings are the settings that have a flag of their own, by the flag.
func flagSettings() map[string]string {
	return map[string]string{"dev": "dev", "xds": "xds.addresses", "control-plane": "xds.addresses",
		"name":      "workload.name",
		"namespace": "workload.namespace", "address": "workload.addresses", "labels": "workload.labels", "type": "workload.type",
		"interception": "workload.interception", "state": "state", "envoy": "envoy.path"}
}

// add defines the flags.
func (f *flags) add(fs *pflag.FlagSet) {
	f.given = fs
	fs.SortFlags = false
	defaults := agent.Default()
	fs.StringVar(&f.config, "config", "", "settings `file`; flags win over it")
	fs.StringArrayVar(&f.set, "set", nil,
		"a `setting=value` of docs/agent.md, such as envoy.concurrency=2; may be repeated")
	fs.Bool("dev", false, "plaintext to the control plane, without an identity, for trials on one machine")
	if fs.Lookup("control-plane") == nil {
		fs.StringSlice("xds", nil, "`host:port` of the control plane; several replicas with commas")
	}
	fs.String("name", "", "`name` of the workload, unique in its namespace (default: the host name)")
	fs.String("namespace", defaults.Workload.Namespace, "`namespace` of the workload")
	fs.StringSlice("address", nil, "the workload's own IP `address`; the first is where Envoy opens its ports")
	fs.StringToStringVar(&f.labels, "labels", nil, "the workload's `labels`, app=web,version=v1")
	fs.String("type", defaults.Workload.Type, "sidecar or router (a gateway)")
	fs.String("interception", defaults.Workload.Interception,
		"how traffic reaches Envoy: none (applications connect to it), tproxy (by the rules of \"ashore-agent intercept\") or redirect (by rules of your own)")
	fs.String("state", "", "`folder` for the identity, the bootstrap and the sockets (default below /var/lib/ashore-agent; below ~/.local/state/ashore-agent for users other than root, with --dev below the user's cache folder)")
	fs.String("envoy", "", "the Envoy `program` (default: envoy in PATH, else that of the package ashore-envoy)")
}

// document is the given flags as a settings file.
func (f *flags) document() ([]byte, error) {
	doc := map[string]any{}
	f.sets = map[string]bool{}
	for _, text := range f.set {
		name, value, ok := strings.Cut(text, "=")
		var v any
		if err := yaml.Unmarshal([]byte(value), &v); err != nil || !ok {
			return nil, usage(fmt.Errorf("--set %q: want SETTING=VALUE, such as envoy.concurrency=2", text))
		}
		put(doc, name, v)
		f.sets[name] = true
	}
	for flag, setting := range flagSettings() {
		given := f.given.Lookup(flag)
		if given == nil || !given.Changed {
			continue
		}
		f.sets[setting] = true
		list, isList := given.Value.(pflag.SliceValue)
		switch {
		case isList:
			put(doc, setting, list.GetSlice())
		case flag == "labels":
			put(doc, setting, f.labels)
		case flag == "dev":
			put(doc, setting, given.Value.String() == "true")
		default:
			put(doc, setting, given.Value.String())
		}
	}
	return yaml.Marshal(doc)
}

// put sets the value at a path of names with dots between.
func put(doc map[string]any, path string, value any) {
	name, rest, more := strings.Cut(path, ".")
	if !more {
		doc[name] = value
		return
	}
	inner, ok := doc[name].(map[string]any)
	if !ok {
		inner = map[string]any{}
		doc[name] = inner
	}
	put(inner, rest, value)
}

// settings are the defaults, those that the workload joined with, the file's settings over them,
// and the given flags over those; checked.
func (f *flags) settings() (agent.Settings, error) {
	s, _, err := f.read()
	if err != nil {
		return s, err
	}
	return s, f.explain(s.Complete())
}

// read is settings without the check. base are those that a workload of this machine has without
// its own file and flags.
func (f *flags) read() (s, base agent.Settings, err error) {
	s, base = agent.Default(), agent.Default()
	if f.host {
		s.Workload.Interception = "tproxy"
	}
	if err := f.readOwn(&s); err != nil {
		return s, base, err
	}
	if file := f.file(); file != "" {
		data, err := strictyaml.ReadFile(file)
		if err != nil {
			return s, base, usage(fmt.Errorf("%w (--config)", err))
		}
		if f.places, err = strictyaml.Decode(file, data, &s); err != nil {
			return s, base, usage(err)
		}
		if f.config == "" {
			_, _ = strictyaml.Decode(file, data, &base) // s was decoded from the same text
		}
	}
	if f.given == nil {
		return s, base, nil
	}
	data, err := f.document()
	if err != nil {
		return s, base, err
	}
	_, err = strictyaml.Decode("command line", data, &s)
	for _, e := range unjoin(err) {
		if wrong, ok := errors.AsType[*strictyaml.Error](e); ok {
			wrong.Line = 0
		}
	}
	return s, base, usage(err)
}

// file is the settings file; empty: there is none.
func (f *flags) file() string {
	if f.config != "" || !f.host && filepath.Dir(f.state) != agent.PackagedState {
		return f.config
	}
	if _, err := os.Lstat(agent.OperatorSettings); err != nil {
		return ""
	}
	return agent.OperatorSettings
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

// joined finds the workload that has joined, unless the command line describes another one.
func (f *flags) joined() error {
	value := func(name string) string {
		if flag := f.given.Lookup(name); flag.Changed {
			return flag.Value.String()
		}
		return ""
	}
	if f.state = value("state"); f.state != "" {
		return nil
	}
	if value("dev") != "" || f.config != "" || value("xds") != "" {
		return nil
	}
	state, err := agent.FindJoined(value("name"), value("namespace"))
	if errors.Is(err, agent.ErrNoIdentity) && (value("name") != "" || value("address") != "") {
		return nil // the settings that are missing are named
	}
	f.state = state
	return err
}

// explain adds the flag, or else the place in the settings file, to errors about settings, and makes
// them errors of usage.
func (f *flags) explain(err error) error {
	if _, ok := errors.AsType[*agent.UsageError](err); !ok {
		return err
	}
	var out []error
	for _, e := range unjoin(err) {
		if u, ok := errors.AsType[*agent.UsageError](e); ok {
			if flag := f.flagOf(u.Setting); flag != "" {
				e = fmt.Errorf("--%s: %w", flag, u)
			} else if place := f.places.Of(u.Setting); place != "" && !f.sets[u.Setting] {
				e = fmt.Errorf("%s: %w", place, u)
			}
		}
		out = append(out, e)
	}
	return usage(errors.Join(out...))
}

// flagOf returns the flag that a setting was given by, or "".
func (f *flags) flagOf(setting string) string {
	for flag, s := range flagSettings() {
		if s == setting && f.given != nil && f.given.Changed(flag) {
			return flag
		}
	}
	return ""
}

// unjoin are the errors that errors.Join put together.
func unjoin(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
