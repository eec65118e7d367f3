package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// maxFile is the greatest size of the file of a Memory, in bytes. A registration has about 500
// bytes.
const maxFile = 256 << 20

// load reads the file. It renames a file that cannot be used, so that the next write does not
// destroy it.
func (m *Memory) load() []Registration {
	if m.cfg.File == "" {
		return nil
	}
	raw, _, err := readfile.Read(m.cfg.File, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var list []Registration
	if err == nil {
		list, err = decodeRegistrations(raw)
	}
	if err != nil {
		renamed := m.cfg.File + ".unusable"
		m.cfg.Log.Error("registrations of the last run are lost; workloads register again when their proxies connect",
			"file", m.cfg.File, "error", err, "renamed to", renamed)
		if err := os.Rename(m.cfg.File, renamed); err != nil {
			m.cfg.Log.Error("the file could not be renamed; the next registration overwrites it", "error", err)
		}
	}
	return list
}

// save writes the file and reports whether it succeeded. It logs the first failure and the end of
// failures. Meanwhile the registrations are active, but would be lost at a restart.
func (m *Memory) save(all Registrations) (saved bool) {
	if m.cfg.File == "" {
		return true
	}
	list := make([]*Registration, 0, all.Len())
	for _, r := range all.All() {
		list = append(list, r)
	}
	raw, err := json.Marshal(list)
	if err == nil {
		err = wholefile.Write(m.cfg.File, raw)
	}
	switch failed := err != nil; {
	case failed && !m.failing:
		m.cfg.Log.Error("registrations would be lost at a restart: check the disk and the permissions of the folder",
			"file", m.cfg.File, "error", err)
	case !failed && m.failing:
		m.cfg.Log.Info("registrations are saved again", "file", m.cfg.File)
	}
	m.failing = err != nil
	return err == nil
}

// decodeRegistrations parses the file. It returns an error if one registration is invalid.
func decodeRegistrations(raw []byte) ([]Registration, error) {
	var list []Registration
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	for i := range list {
		r := &list[i]
		address := len(r.Addresses) > 0 && r.Addresses[0].IsValid()
		if r.Namespace == "" || r.Name == "" || !address || r.Health.State > ReportedUnhealthy {
			return nil, fmt.Errorf("registration %d is incomplete", i)
		}
	}
	return list, nil
}
