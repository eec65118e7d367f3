package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/internal/strictyaml"
)

// flags are the settings that a command line names. They win over those of files.
type flags struct {
	config      string
	joinedState string // where a workload joined whose settings come first; empty: not known
	host        bool   // the settings are for a workload that units of this machine run
	units       bool   // units of systemd run Envoy

	dev                                               bool
	name, namespace, kind, interception, state, envoy string
	xds, addresses, set                               []string
	labels                                            map[string]string

	xdsFlag string             // the name of the flag for xds
	places  *strictyaml.Places // of the settings that are from a file; nil without one
}

// add defines the flags; xds is the one for the addresses of control planes.
func (f *flags) add(fs *pflag.FlagSet, xds string) {
	fs.SortFlags = false
	f.xdsFlag = xds
	fs.StringSliceVar(&f.xds, xds, nil, "`host:port` of the control plane; several replicas with commas")
	fs.StringVar(&f.config, "config", "", "settings `file`; flags win over it")
	fs.StringArrayVar(&f.set, "set", nil,
		"a `setting=value` of docs/agent.md, such as envoy.concurrency=2; may be repeated")
	fs.BoolVar(&f.dev, "dev", false, "plaintext to the control plane, without an identity, for trials on one machine")
	fs.StringVar(&f.name, "name", "", "`name` of the workload, unique in its namespace (default: the host name)")
	fs.StringVar(&f.namespace, "namespace", "", "`namespace` of the workload (default \"default\")")
	fs.StringSliceVar(&f.addresses, "address", nil,
		"the workload's own IP `address`; the first is where Envoy opens its ports")
	fs.StringToStringVar(&f.labels, "labels", nil, "the workload's `labels`, app=web,version=v1")
	fs.StringVar(&f.kind, "type", "", "`type` of the workload: sidecar or router (a gateway)")
	fs.StringVar(&f.interception, "interception", "", "`how` traffic reaches Envoy: none (applications connect to it), "+
		"tproxy (by the rules of \"ashore-agent intercept\") or redirect (by rules of your own)")
	fs.StringVar(&f.state, "state", "", "`folder` for the identity, the bootstrap and the sockets (default below "+
		"/var/lib/ashore-agent; below ~/.local/state/ashore-agent for users other than root, with --dev below the "+
		"user's cache folder)")
	fs.StringVar(&f.envoy, "envoy", "",
		"the Envoy `program` (default: envoy in PATH, else that of the package ashore-envoy)")
}

// apply lays the given flags over s.
func (f *flags) apply(s *agent.Settings) error {
	s.Dev = s.Dev || f.dev
	for to, value := range map[*string]string{&s.Workload.Name: f.name, &s.Workload.Namespace: f.namespace,
		&s.Workload.Type: f.kind, &s.Workload.Interception: f.interception, &s.State: f.state, &s.Envoy.Path: f.envoy} {
		*to = cmp.Or(value, *to)
	}
	if len(f.xds) > 0 {
		s.XDS.Addresses = f.xds
	}
	if len(f.addresses) > 0 {
		s.Workload.Addresses = f.addresses
	}
	if len(f.labels) > 0 {
		s.Workload.Labels = f.labels
	}
	for _, text := range f.set {
		path, value, ok := strings.Cut(text, "=")
		if !ok {
			return usage(fmt.Errorf("--set %s: want SETTING=VALUE, such as envoy.concurrency=2", text))
		}
		doc := ""
		for depth, name := range strings.Split(path, ".") {
			doc += "\n" + strings.Repeat(" ", depth) + name + ":"
		}
		_, err := strictyaml.Decode("--set", []byte(doc+" "+value), s)
		if wrong, ok := errors.AsType[*strictyaml.Error](err); ok {
			wrong.Line = 0
		}
		if err != nil {
			return usage(err)
		}
	}
	return nil
}

// settings are the defaults, those that the workload joined with, the file's settings over them,
// and the given flags over those; checked.
func (f *flags) settings() (agent.Settings, error) {
	s, _, err := f.read()
	if err != nil {
		return s, err
	}
	if f.units {
		workload := f.state // ashore-agent.service, of the main workload, names none
		if workload != "" {
			workload = filepath.Base(workload)
		}
		s.UseUnits(workload)
	}
	return s, f.named(s.Complete())
}

// read is settings without the check. base are those that a workload of this machine has without
// its own file and flags.
func (f *flags) read() (s, base agent.Settings, err error) {
	s, base = agent.Default(), agent.Default()
	if f.host {
		s.Workload.Interception = "tproxy"
	}
	if f.joinedState != "" {
		_, err := readSettings(agent.OwnSettings(f.joinedState), &s)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it did not join
			return s, base, err
		}
		s.State = f.joinedState
	}
	if file := f.file(); file != "" {
		if f.places, err = readSettings(file, &s); err == nil && f.config == "" {
			_, err = readSettings(file, &base)
		}
		if err != nil {
			return s, base, err
		}
	}
	return s, base, f.apply(&s)
}

// readSettings lays the settings of a file over s. It returns where they are in the file.
func readSettings(file string, s *agent.Settings) (*strictyaml.Places, error) {
	data, err := strictyaml.ReadFile(file)
	if err != nil {
		return nil, usage(err)
	}
	places, err := strictyaml.Decode(file, data, s)
	return places, usage(err)
}

// named adds to each error about a setting the flag, or the place in the settings file, that set it.
func (f *flags) named(err error) error {
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = slices.Clone(joined.Unwrap())
	}
	for i, e := range list {
		if wrong, ok := errors.AsType[*agent.UsageError](e); ok {
			if from := cmp.Or(f.given(wrong.Setting), f.places.Of(wrong.Setting)); from != "" {
				list[i] = fmt.Errorf("%s: %w", from, e)
			}
		}
	}
	return errors.Join(list...)
}

// given returns the flag that sets a setting. Empty if the command line does not have it.
func (f *flags) given(setting string) string {
	for _, x := range []struct {
		setting, flag string
		given         bool
	}{
		{"xds.addresses", f.xdsFlag, len(f.xds) > 0},
		{"workload.addresses", "address", len(f.addresses) > 0},
		{"workload.name", "name", f.name != ""},
		{"workload.namespace", "namespace", f.namespace != ""},
		{"workload.labels", "labels", len(f.labels) > 0},
		{"workload.type", "type", f.kind != ""},
		{"workload.interception", "interception", f.interception != ""},
		{"state", "state", f.state != ""},
		{"envoy.path", "envoy", f.envoy != ""},
	} {
		if x.given && x.setting == setting {
			return "--" + x.flag
		}
	}
	return ""
}

// keptSettings are those of a workload that has joined.
func keptSettings(state string) (agent.Settings, error) {
	s, _, err := (&flags{joinedState: state}).read()
	return s, err
}

// file is the settings file; empty: there is none.
func (f *flags) file() string {
	if f.config != "" || !f.host && filepath.Dir(f.joinedState) != agent.PackagedState {
		return f.config
	}
	if _, err := os.Lstat(agent.OperatorSettings); err != nil {
		return ""
	}
	return agent.OperatorSettings
}

// joined finds the workload that has joined, unless the command line describes another one.
func (f *flags) joined() error {
	f.joinedState = f.state
	if f.state != "" || f.config != "" || f.dev || len(f.xds) > 0 {
		return nil
	}
	state, err := agent.FindJoined(f.name, f.namespace)
	if errors.Is(err, agent.ErrNoIdentity) && (f.name != "" || len(f.addresses) > 0) {
		return nil // the settings that are missing are named
	}
	f.joinedState = state
	return err
}
