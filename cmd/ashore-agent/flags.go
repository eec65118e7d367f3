package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/internal/strictyaml"
)

// flags are the settings that a command line names. They win over those of files.
type flags struct {
	config string
	state  string // where a workload joined whose settings come first; empty: not known
	host   bool   // the settings are for a workload that units of this machine run

	dev    bool
	units  bool // units of systemd run Envoy
	labels map[string]string
	given  map[string]any     // the settings of the command line: "workload.name"
	flag   map[string]string  // the flags of those that have one of their own
	places *strictyaml.Places // of the settings that are from a file; nil without one
}

// add defines the flags; xds is the one for the addresses of control planes.
func (f *flags) add(fs *pflag.FlagSet, xds string) {
	f.given, f.flag = map[string]any{}, map[string]string{}
	fs.SortFlags = false
	text := func(name, setting, usage string) {
		f.flag[setting] = name
		fs.Func(name, usage, func(value string) error { f.given[setting] = value; return nil })
	}
	list := func(name, setting, usage string) {
		f.flag[setting] = name
		fs.Func(name, usage, func(value string) error {
			before, _ := f.given[setting].([]string)
			f.given[setting] = append(before, strings.Split(value, ",")...)
			return nil
		})
	}
	list(xds, "xds.addresses", "`host:port` of the control plane; several replicas with commas")
	fs.StringVar(&f.config, "config", "", "settings `file`; flags win over it")
	fs.Func("set", "a `setting=value` of docs/agent.md, such as envoy.concurrency=2; may be repeated",
		func(text string) error {
			name, value, ok := strings.Cut(text, "=")
			var v any
			if err := yaml.Unmarshal([]byte(value), &v); err != nil || !ok {
				return errors.New("want SETTING=VALUE, such as envoy.concurrency=2")
			}
			f.given[name] = v
			return nil
		})
	fs.BoolVar(&f.dev, "dev", false, "plaintext to the control plane, without an identity, for trials on one machine")
	text("name", "workload.name", "`name` of the workload, unique in its namespace (default: the host name)")
	text("namespace", "workload.namespace", "`namespace` of the workload (default \"default\")")
	list("address", "workload.addresses", "the workload's own IP `address`; the first is where Envoy opens its ports")
	f.flag["workload.labels"] = "labels"
	fs.StringToStringVar(&f.labels, "labels", nil, "the workload's `labels`, app=web,version=v1")
	text("type", "workload.type", "`type` of the workload: sidecar or router (a gateway)")
	text("interception", "workload.interception", "`how` traffic reaches Envoy: none (applications connect to it), "+
		"tproxy (by the rules of \"ashore-agent intercept\") or redirect (by rules of your own)")
	text("state", "state", "`folder` for the identity, the bootstrap and the sockets (default below "+
		"/var/lib/ashore-agent; below ~/.local/state/ashore-agent for users other than root, with --dev below the "+
		"user's cache folder)")
	text("envoy", "envoy.path", "the Envoy `program` (default: envoy in PATH, else that of the package ashore-envoy)")
}

// text is a setting of the command line; empty: it is not given.
func (f *flags) text(setting string) string {
	value, _ := f.given[setting].(string)
	return value
}

// document is the given settings as a settings file.
func (f *flags) document() ([]byte, error) {
	if f.dev {
		f.given["dev"] = true
	}
	if len(f.labels) > 0 {
		f.given["workload.labels"] = f.labels
	}
	doc := map[string]any{}
	for _, path := range slices.Sorted(maps.Keys(f.given)) {
		put(doc, path, f.given[path])
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
	if f.units {
		workload := f.text("state") // ashore-agent.service, of the main workload, names none
		if workload != "" {
			workload = filepath.Base(workload)
		}
		s.UseUnits(workload)
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
	if f.state != "" {
		_, err := readSettings(agent.OwnSettings(f.state), &s)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it did not join
			return s, base, err
		}
		s.State = f.state
	}
	if file := f.file(); file != "" {
		if f.places, err = readSettings(file, &s); err == nil && f.config == "" {
			_, err = readSettings(file, &base)
		}
		if err != nil {
			return s, base, err
		}
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

// readSettings lays the settings of a file over s. It returns where they are in it.
func readSettings(file string, s *agent.Settings) (*strictyaml.Places, error) {
	data, err := strictyaml.ReadFile(file)
	if err != nil {
		return nil, usage(err)
	}
	places, err := strictyaml.Decode(file, data, s)
	return places, usage(err)
}

// keptSettings are those of a workload that has joined.
func keptSettings(state string) (agent.Settings, error) {
	s, _, err := (&flags{state: state}).read()
	return s, err
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

// joined finds the workload that has joined, unless the command line describes another one.
func (f *flags) joined() error {
	f.state = f.text("state")
	if f.state != "" || f.config != "" || f.dev || f.given["xds.addresses"] != nil {
		return nil
	}
	name := f.text("workload.name")
	state, err := agent.FindJoined(name, f.text("workload.namespace"))
	if errors.Is(err, agent.ErrNoIdentity) && (name != "" || f.given["workload.addresses"] != nil) {
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
			place := f.places.Of(u.Setting)
			if flag := f.flag[u.Setting]; f.given[u.Setting] != nil && flag != "" {
				place = "--" + flag
			} else if f.given[u.Setting] != nil {
				place = ""
			}
			if place != "" {
				e = fmt.Errorf("%s: %w", place, u)
			}
		}
		out = append(out, e)
	}
	return usage(errors.Join(out...))
}

// unjoin are the errors that errors.Join put together.
func unjoin(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
