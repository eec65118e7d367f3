package main

import (
	"cmp"
	"encoding/json"
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

// flags are the settings of a command line. They override those of files.
type flags struct {
	config string
	set    []string // SETTING=VALUE
	units  bool     // units of systemd run Envoy
	known  []settingFlag

	joinedState string             // where a workload joined whose settings come first; empty: not known
	host        bool               // the settings are for a workload that units of this machine run
	places      *strictyaml.Places // of the settings that are from a file; nil without one
}

// settingFlag is a flag for one setting.
type settingFlag struct {
	*pflag.Flag
	setting string
	value   any // pointer
}

// add defines the flags; xds is the one for the addresses of control planes.
func (f *flags) add(fs *pflag.FlagSet, xds string) {
	fs.SortFlags = false
	setting := func(flag, setting string, value any) {
		f.known = append(f.known, settingFlag{fs.Lookup(flag), setting, value})
	}
	text := func(flag, path, usage string) { setting(flag, path, fs.String(flag, "", usage)) }
	list := func(flag, path, usage string) { setting(flag, path, fs.StringSlice(flag, nil, usage)) }

	list(xds, "xds.addresses", "`host:port` of the control plane; several replicas with commas")
	fs.StringVar(&f.config, "config", "", "settings `file`; flags win over it")
	fs.StringArrayVar(&f.set, "set", nil,
		"a `setting=value` of docs/agent.md, such as envoy.concurrency=2; may be repeated")
	setting("dev", "dev",
		fs.Bool("dev", false, "plaintext to the control plane, without an identity, for trials on one machine"))
	text("name", "workload.name", "`name` of the workload, unique in its namespace (default: the host name)")
	text("namespace", "workload.namespace", "`namespace` of the workload (default \"default\")")
	list("address", "workload.addresses",
		"the workload's own IP `address`; the first is where Envoy opens its ports")
	setting("labels", "workload.labels",
		fs.StringToString("labels", nil, "the workload's `labels`, app=web,version=v1"))
	text("type", "workload.type", "`type` of the workload: sidecar or router (a gateway)")
	text("interception", "workload.interception", "`how` traffic reaches Envoy: none, tproxy (by the rules of "+
		"\"ashore-agent intercept\") or redirect (by rules of your own)")
	text("service-account-token", "xds.tokenFile", "`file` with a token of the workload's service account, instead of a "+
		"one-time token; it is read for each request for a certificate")
	text("ca-file", "xds.caFile", "`file` with the root certificates of the control plane, instead of their hash")
	text("state", "state", "`folder` for identity and sockets (default: as root below /var/lib/ashore-agent)")
	text("envoy", "envoy.path", "the Envoy `program` (default: envoy in PATH, else that of the package ashore-envoy)")
}

// given returns the flag that sets a setting; nil if the command line does not have it.
func (f *flags) given(setting string) *settingFlag {
	for _, x := range f.known {
		if x.setting == setting && x.Changed {
			return &x
		}
	}
	return nil
}

// text is the value of the flag for a setting that is a text; empty: it is not given.
func (f *flags) text(setting string) string {
	if x := f.given(setting); x != nil {
		return x.Value.String()
	}
	return ""
}

// apply sets the given flags in s.
func (f *flags) apply(s *agent.Settings) error {
	for _, x := range f.known {
		value, err := json.Marshal(x.value) // JSON is YAML
		if x.Changed && err == nil {
			err = f.override(s, "--"+x.Name, x.setting, string(value))
		}
		if err != nil {
			return err
		}
	}
	for _, text := range f.set {
		setting, value, ok := strings.Cut(text, "=")
		if !ok {
			return usage(fmt.Errorf("--set %s: want SETTING=VALUE, such as envoy.concurrency=2", text))
		}
		if err := f.override(s, "--set", setting, value); err != nil {
			return err
		}
	}
	return nil
}

// override sets one setting to a value in YAML. flag is named in errors.
func (f *flags) override(s *agent.Settings, flag, setting, value string) error {
	if f.places == nil {
		f.places = &strictyaml.Places{}
	}
	return usage(f.places.Set(flag, setting, value, s))
}

// settings returns the complete settings: the defaults, overridden by those that the workload joined
// with, by the settings file and by the flags.
func (f *flags) settings() (agent.Settings, error) {
	s, err := f.read()
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
	return s, f.named(s.Complete())
}

// read returns the settings before Complete.
func (f *flags) read() (s agent.Settings, err error) {
	s = agent.Default()
	if f.host {
		s.Workload.Interception = "tproxy"
	}
	if f.joinedState != "" {
		_, err := agent.ReadSettings(agent.JoinedSettings(f.joinedState), &s)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it did not join
			return s, usage(err)
		}
		s.State = f.joinedState
	}
	if file := f.file(); file != "" {
		if f.places, err = agent.ReadSettings(file, &s); err != nil {
			return s, usage(err)
		}
	}
	return s, f.apply(&s)
}

// file returns the path of the settings file; empty: there is none.
func (f *flags) file() string {
	if f.config != "" || !f.host && filepath.Dir(f.joinedState) != agent.PackagedState {
		return f.config
	}
	if _, err := os.Lstat(agent.OperatorSettings); err != nil {
		return ""
	}
	return agent.OperatorSettings
}

// named adds to each error about a setting the flag or the place in the settings file that set it.
func (f *flags) named(err error) error {
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = slices.Clone(joined.Unwrap())
	}
	for i, e := range list {
		if wrong, ok := errors.AsType[*agent.UsageError](e); ok {
			if from := f.places.Of(wrong.Setting); from != "" {
				list[i] = fmt.Errorf("%s: %w", from, e)
			}
		}
	}
	return errors.Join(list...)
}

// joined finds the workload that has joined, unless the command line describes another one.
func (f *flags) joined() error {
	f.joinedState = f.text("state")
	if cmp.Or(f.joinedState, f.config) != "" || f.given("dev") != nil || f.given("xds.addresses") != nil {
		return nil
	}
	state, _, err := agent.FindJoined()
	if errors.Is(err, agent.ErrNoIdentity) && (f.given("workload.name") != nil || f.given("workload.addresses") != nil) {
		return nil // the settings that are missing are named
	}
	f.joinedState = state
	return err
}
