package envoy

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// maxFile bounds what is read of one file.
const maxFile = 1 << 20

// UnitsConfig is the configuration of Units.
type UnitsConfig struct {
	Options
	// Program is Envoy's.
	Program string
	// Bootstrap is Envoy's first configuration.
	Bootstrap []byte
	// Workload is part of the units' names; empty: the machine's main workload.
	Workload string
	// Folder has the units' files. Sockets is where Envoy makes its sockets.
	Folder, Sockets string
	// ParentShutdown is how long an Envoy that was replaced may finish its requests.
	ParentShutdown time.Duration
}

// launch writes and compares the files that units start Envoy with. A restart epoch has a unit and
// two files of its own.
type launch struct {
	UnitsConfig
	program string // identifies Program; it changes with an upgrade
	unit    string // prefix of the units' names: "ashore-envoy@", "ashore-envoy@web-"
	files   string // prefix of the files' paths: "/run/ashore-agent/envoy-"
}

func newLaunch(c UnitsConfig) (*launch, error) {
	info, err := os.Stat(c.Program)
	if err != nil {
		return nil, fmt.Errorf("look at Envoy: %w", err)
	}
	changed := info.ModTime().UTC().Format(time.RFC3339Nano)
	return &launch{c, fmt.Sprintf("%s, %d bytes, changed %s", c.Program, info.Size(), changed),
		"ashore-envoy@" + dashed(c.Workload), filesPrefix(c.Folder, c.Workload)}, nil
}

func dashed(workload string) string {
	if workload == "" {
		return ""
	}
	return workload + "-"
}

func filesPrefix(folder, workload string) string {
	return filepath.Join(folder, "envoy-") + dashed(workload)
}

// maxBaseID bounds Envoy's base ID, which Envoy multiplies by 10 in 32 bits.
const maxBaseID = 1 << 27

// baseID is the same for all Envoys of a workload, so that the next one uses their shared memory.
func baseID(folder, workload string) int {
	h := fnv.New32a()
	h.Write([]byte(filesPrefix(folder, workload)))
	return 1 + int(h.Sum32()%(maxBaseID-1))
}

// SharedMemory is the file name, in /dev/shm, of the shared memory of a workload's Envoys. They need
// it for a hot restart, and to start again after a crash. Source: Envoy, hot_restart_impl.cc.
func SharedMemory(folder, workload string) string {
	return fmt.Sprintf("envoy_shared_memory_%d0", baseID(folder, workload))
}

func (l *launch) name(epoch int) string { return l.unit + strconv.Itoa(epoch) + ".service" }

// epoch returns the epoch of a unit's name.
func (l *launch) epoch(name string) (int, bool) {
	text, ours := strings.CutPrefix(strings.TrimSuffix(name, ".service"), l.unit)
	n, err := strconv.Atoi(text)
	return n, ours && err == nil && n >= 0
}

// content returns the files of an epoch by path. The unit reads the first up to an empty line: Envoy's
// arguments, its resource attributes, and a line for each environment variable.
func (l *launch) content(epoch int) map[string][]byte {
	prefix := l.files + strconv.Itoa(epoch)
	args := append(l.arguments(),
		"--socket-path", filepath.Join(l.Sockets, "hot"), "--socket-mode", "600",
		"--parent-shutdown-time-s", seconds(l.ParentShutdown),
		"--skip-hot-restart-parent-stats",
		"--config-path", prefix+".json",
		"--base-id", strconv.Itoa(baseID(l.Folder, l.Workload)), "--restart-epoch", strconv.Itoa(epoch))
	if epoch > 0 { // systemd restarts a crashed Envoy with the same arguments; its predecessor may have ended
		args = append(args, "--skip-hot-restart-on-no-parent")
	}
	lines := append([]string{strings.Join(args, " "), l.resource()}, l.Variables...)
	return map[string][]byte{
		prefix + ".args": fmt.Appendf(nil, "%s\n\nWritten by ashore-agent. Program: %s\n", strings.Join(lines, "\n"), l.program),
		prefix + ".json": l.Bootstrap,
	}
}

// current reports whether the files of an epoch are those that write would write.
func (l *launch) current(epoch int) bool {
	for path, data := range l.content(epoch) {
		if found, _, err := readfile.Read(path, maxFile); err != nil || !bytes.Equal(found, data) {
			return false
		}
	}
	return true
}

// write writes the files of an epoch, readable for Envoy's group.
func (l *launch) write(epoch int) error {
	for path, data := range l.content(epoch) {
		if err := wholefile.Write(path, data); err != nil {
			return fmt.Errorf("start Envoy: %w", err)
		}
		if err := os.Chmod(path, 0o640); err != nil {
			return fmt.Errorf("start Envoy: %w", err)
		}
	}
	return nil
}

// clean removes the files of all epochs but these.
func (l *launch) clean(keep []int) error {
	found, err := filepath.Glob(l.files + "*")
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range found {
		number, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(path, l.files), filepath.Ext(path)))
		if err == nil && !slices.Contains(keep, number) {
			errs = append(errs, wholefile.Remove(path))
		}
	}
	return errors.Join(errs...)
}
