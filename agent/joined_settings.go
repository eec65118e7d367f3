package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/internal/strictyaml"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// ReadSettings applies the settings of a file to s. It returns their places in the file.
func ReadSettings(file string, s *Settings) (*strictyaml.Places, error) {
	data, err := strictyaml.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return strictyaml.Decode(file, data, s)
}

// SavedSettings returns the settings of a workload that has joined, before Complete: those that it
// joined with and, if units run it, the operator's on top.
func SavedSettings(state string) (Settings, error) {
	s, err := readAll(append([]string{JoinedSettings(state)}, operatorFiles(state)...))
	s.State = state
	return s, err
}

// operatorFiles are the settings files that apply to the workload of a state folder anyway.
func operatorFiles(state string) []string {
	if filepath.Dir(state) != PackagedState {
		return nil
	}
	return []string{OperatorSettings}
}

// readAll returns the defaults with the settings of the files that exist on top.
func readAll(files []string) (Settings, error) {
	s := Default()
	for _, file := range files {
		if _, err := ReadSettings(file, &s); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
	}
	return s, nil
}

// saveSettings writes the settings that do not apply anyway.
func saveSettings(s *Settings) error {
	base, err := readAll(operatorFiles(s.State))
	if err != nil {
		return err
	}
	doc, err := s.document()
	if err != nil {
		return err
	}
	theirs, err := base.document()
	if err != nil {
		return err
	}
	subtract(doc, theirs)
	delete(doc, "state")
	text, err := yaml.Marshal(doc)
	if err != nil {
		return fmt.Errorf("encode the settings: %w", err)
	}
	const head = "# Written by \"ashore-agent join\"; read by \"ashore-agent run\" before its own flags and files.\n"
	if err := wholefile.Write(JoinedSettings(s.State), append([]byte(head), text...)); err != nil {
		return diskError("keep the settings", err)
	}
	return nil
}

// document returns the settings as YAML has them.
func (s *Settings) document() (map[string]any, error) {
	text, err := yaml.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the settings: %w", err)
	}
	var out map[string]any
	if err := yaml.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("read back the settings: %w", err)
	}
	return out, nil
}

// subtract removes from a what is equal in b.
func subtract(a, b map[string]any) {
	maps.DeleteFunc(a, func(k string, v any) bool {
		inner, isMap := v.(map[string]any)
		other, same := b[k].(map[string]any)
		if isMap && same {
			subtract(inner, other)
			return len(inner) == 0
		}
		return reflect.DeepEqual(v, b[k])
	})
}

// FindJoined returns the state folders of all workloads of this machine that have joined, and the one
// of MainLink, or the only one. It is an error if there is none, or if the choice is ambiguous.
func FindJoined() (state string, all []string, err error) {
	base, err := stateBase(false)
	if err != nil {
		return "", nil, err
	}
	return findJoined(base)
}

func findJoined(base string) (state string, all []string, err error) {
	found, err := filepath.Glob(filepath.Join(base, "*", identityFile))
	if err != nil {
		return "", nil, err
	}
	for _, path := range found {
		if dir := filepath.Dir(path); filepath.Base(dir) != MainLink {
			all = append(all, dir)
		}
	}
	main, err := os.Readlink(filepath.Join(base, MainLink))
	if main = filepath.Join(base, main); err == nil && slices.Contains(all, main) {
		return main, all, nil
	}
	switch len(all) {
	case 1:
		return all[0], all, nil
	case 0:
		if _, err := os.ReadDir(base); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", nil, fmt.Errorf("look for workloads that have joined: %w; run this as the agent's user, or name its "+
				"folder (--state)", err)
		}
		return "", nil, fmt.Errorf("below %s: %w; when it joined with another folder, name that (--state)", base,
			ErrNoIdentity)
	}
	return "", all, fmt.Errorf("several workloads of this machine have joined: say which one by --state: %s",
		strings.Join(all, ", "))
}
