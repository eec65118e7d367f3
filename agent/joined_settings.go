package agent

import (
	"errors"
	"fmt"
	"io/fs"
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

// Kept returns the settings of a workload that has joined, before Complete: those that it joined
// with and, if units run it, the operator's on top.
func Kept(state string) (Settings, error) {
	files := []string{JoinedSettings(state)}
	if filepath.Dir(state) == PackagedState {
		files = append(files, OperatorSettings)
	}
	s := Default()
	for _, file := range files {
		if _, err := ReadSettings(file, &s); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
	}
	s.State = state
	return s, nil
}

// saveSettings writes the settings that differ from base. Nil: Default.
func saveSettings(s, base *Settings) error {
	if base == nil {
		d := Default()
		base = &d
	}
	doc, err := s.changes(base)
	if err != nil {
		return err
	}
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

// changes returns the settings that differ from base, as a document, without the state folder.
func (s *Settings) changes(base *Settings) (map[string]any, error) {
	mine, err := document(s)
	if err != nil {
		return nil, err
	}
	theirs, err := document(base)
	if err != nil {
		return nil, err
	}
	out := subtract(mine, theirs)
	delete(out, "state")
	return out, nil
}

func document(s *Settings) (map[string]any, error) {
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

// subtract returns a without what is equal in b.
func subtract(a, b map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range a {
		inner, isMap := v.(map[string]any)
		other, same := b[k].(map[string]any)
		switch {
		case isMap && same:
			if d := subtract(inner, other); len(d) > 0 {
				out[k] = d
			}
		case !reflect.DeepEqual(v, b[k]):
			out[k] = v
		}
	}
	return out
}

// AllJoined returns the state folders of the workloads of this machine that have joined.
func AllJoined() ([]string, error) {
	base, err := stateBase(false)
	if err != nil {
		return nil, err
	}
	return allJoined(base)
}

func allJoined(base string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(base, "*", identityFile))
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, path := range found {
		if dir := filepath.Dir(path); filepath.Base(dir) != MainLink {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// FindJoined returns the only state folder of AllJoined, or of several that of MainLink. It is an
// error if there is none, or if the choice is ambiguous.
func FindJoined() (string, error) {
	base, err := stateBase(false)
	if err != nil {
		return "", err
	}
	return findJoined(base)
}

func findJoined(base string) (string, error) {
	dirs, err := allJoined(base)
	if err != nil {
		return "", err
	}
	main, err := os.Readlink(filepath.Join(base, MainLink))
	if main = filepath.Join(base, main); err == nil && slices.Contains(dirs, main) {
		return main, nil
	}
	switch len(dirs) {
	case 1:
		return dirs[0], nil
	case 0:
		if _, err := os.ReadDir(base); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("look for workloads that have joined: %w; run this as the agent's user, or name its "+
				"folder (--state)", err)
		}
		return "", fmt.Errorf("below %s: %w; when it joined with another folder, name that (--state)", base,
			ErrNoIdentity)
	}
	return "", fmt.Errorf("several workloads of this machine have joined: say which one by --state: %s",
		strings.Join(dirs, ", "))
}
