package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// snapshot is the content of the file: registrations, and a sum of their bytes that tells a damaged file.
type snapshot struct {
	Version       int             `json:"v"`
	SHA256        string          `json:"sha256"`
	Registrations json.RawMessage `json:"registrations"`
}

const (
	// snapshotVersion is the only one that is read.
	snapshotVersion = 1
	// maxSnapshot bounds a file that is read, in bytes. A registration has some 500.
	maxSnapshot = 256 << 20
)

// encodeSnapshot writes registrations in the order of their keys.
func encodeSnapshot(all Registrations) ([]byte, error) {
	list := make([]*Registration, 0, all.Len())
	for _, r := range all.All() {
		list = append(list, r)
	}
	body, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return json.Marshal(snapshot{Version: snapshotVersion, SHA256: sumOf(body), Registrations: body})
}

func sumOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// decodeSnapshot reads what encodeSnapshot wrote. Errors say why the bytes cannot be used; then nothing of them is.
func decodeSnapshot(raw []byte) ([]Registration, error) {
	var s snapshot
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	if s.Version != snapshotVersion {
		return nil, fmt.Errorf("it has version %d, this program reads %d", s.Version, snapshotVersion)
	}
	if sumOf(s.Registrations) != s.SHA256 {
		return nil, errors.New("its checksum does not fit: it was damaged or changed by hand")
	}
	var list []Registration
	if err := json.Unmarshal(s.Registrations, &list); err != nil {
		return nil, err
	}
	for i := range list {
		if r := &list[i]; r.Namespace == "" || r.Name == "" || len(r.Addresses) == 0 || !r.Addresses[0].IsValid() || r.Health.State > ReportedUnhealthy {
			return nil, fmt.Errorf("registration %d is incomplete", i)
		}
	}
	return list, nil
}

// kept reads the file. One that cannot be used is put aside, so that the next write does not destroy it.
func (m *Memory) kept() []Registration {
	if m.cfg.File == "" {
		return nil
	}
	raw, _, err := readfile.Read(m.cfg.File, maxSnapshot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var list []Registration
	if err == nil {
		list, err = decodeSnapshot(raw)
	}
	if err != nil {
		aside := m.cfg.File + ".unusable"
		m.cfg.Log.Error("registrations of the last run are lost; workloads register anew as their proxies connect", "file", m.cfg.File, "error", err,
			"put aside", aside)
		if err := os.Rename(m.cfg.File, aside); err != nil {
			m.cfg.Log.Error("the file could not be put aside and is overwritten by the next registration", "error", err)
		}
	}
	return list
}

// keep writes the file. What goes wrong is logged: the registrations count all the same, until a restart.
func (m *Memory) keep() {
	if m.cfg.File == "" {
		return
	}
	raw, err := encodeSnapshot(m.Registrations())
	if err == nil {
		err = wholefile.Write(m.cfg.File, raw)
	}
	if err != nil {
		m.cfg.Log.Error("registrations cannot be kept for a restart: make room on the disk or mend the folder's permissions", "file", m.cfg.File, "error", err)
	}
}
