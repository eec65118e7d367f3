package envoy

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// maxFile bounds what is read of one file.
const maxFile = 1 << 20

// epoch is one Envoy: its restart epoch, and the base ID that it shares with those it replaced.
type epoch struct{ number, base int }

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

// launch writes and reads the files that units start Envoy with.
type launch struct {
	unit      string // prefix of the units' names: "ashore-envoy@", "ashore-envoy@web-"
	files     string // prefix of the files' paths: "/run/ashore-agent/envoy-"
	base      int    // base ID of new Envoys
	args      []string
	bootstrap []byte
	shutdown  time.Duration // see UnitsConfig.ParentShutdown
	program   string        // identifies the program; it changes with an upgrade
}

func newLaunch(c UnitsConfig) (*launch, error) {
	info, err := os.Stat(c.Program)
	if err != nil {
		return nil, fmt.Errorf("look at Envoy: %w", err)
	}
	l := &launch{unit: "ashore-envoy@", files: unitFiles(c.Folder, c.Workload), bootstrap: c.Bootstrap,
		base: baseID(c.Folder, c.Workload), shutdown: c.ParentShutdown,
		program: fmt.Sprintf("%s, %d bytes, changed %s", c.Program, info.Size(),
			info.ModTime().UTC().Format(time.RFC3339Nano))}
	if c.Workload != "" {
		l.unit += c.Workload + "-"
	}
	l.args = append(c.arguments(),
		"--socket-path", filepath.Join(c.Sockets, "hot"), "--socket-mode", "600",
		"--parent-shutdown-time-s", seconds(c.ParentShutdown),
		"--skip-hot-restart-parent-stats")
	return l, nil
}

// unitFiles is the prefix of the paths of a workload's files.
func unitFiles(folder, workload string) string {
	if workload != "" {
		workload += "-"
	}
	return filepath.Join(folder, "envoy-") + workload
}

// maxBaseID bounds Envoy's base ID, which Envoy multiplies by 10 in 32 bits.
const maxBaseID = 1 << 27

// baseID is the same for all Envoys of a workload, so that the next one uses their shared memory.
func baseID(folder, workload string) int {
	h := fnv.New32a()
	h.Write([]byte(unitFiles(folder, workload)))
	return 1 + int(h.Sum32()%(maxBaseID-1))
}

// SharedMemory is the file name, in /dev/shm, of the shared memory of a workload's Envoys. They need
// it for a hot restart, and to start again after a crash. Source: Envoy, hot_restart_impl.cc.
func SharedMemory(folder, workload string) string {
	return fmt.Sprintf("envoy_shared_memory_%d0", baseID(folder, workload))
}

func (l *launch) name(number int) string          { return l.unit + strconv.Itoa(number) + ".service" }
func (l *launch) argumentsFile(number int) string { return l.files + strconv.Itoa(number) + ".args" }
func (l *launch) bootstrapFile(number int) string { return l.files + strconv.Itoa(number) + ".json" }

// number returns the epoch of a unit's name.
func (l *launch) number(name string) (int, bool) {
	text, ours := strings.CutPrefix(strings.TrimSuffix(name, ".service"), l.unit)
	n, err := strconv.Atoi(text)
	return n, ours && err == nil && n >= 0
}

// arguments returns the content of an epoch's arguments file. The unit reads its first line.
func (l *launch) arguments(e epoch) []byte {
	args := append(slices.Clone(l.args), "--config-path", l.bootstrapFile(e.number),
		"--base-id", strconv.Itoa(e.base), "--restart-epoch", strconv.Itoa(e.number))
	if e.number > 0 { // systemd restarts a crashed Envoy with the same arguments; its predecessor may have ended
		args = append(args, "--skip-hot-restart-on-no-parent")
	}
	return fmt.Appendf(nil, "%s\nWritten by ashore-agent. Program: %s\n", strings.Join(args, " "), l.program)
}

var baseIDArgument = regexp.MustCompile(` --base-id (\d{1,9}) `)

// read reads the files of an epoch. same says that write would write the same files; ok is false if
// they cannot be read.
func (l *launch) read(number int) (e epoch, same, ok bool) {
	arguments, _, err := readfile.Read(l.argumentsFile(number), maxFile)
	if err != nil {
		return e, false, false
	}
	found := baseIDArgument.FindSubmatch(arguments)
	if found == nil {
		return e, false, false
	}
	base, err := strconv.Atoi(string(found[1]))
	if err != nil {
		return e, false, false
	}
	e = epoch{number, base}
	bootstrap, _, err := readfile.Read(l.bootstrapFile(number), maxFile)
	same = err == nil && bytes.Equal(bootstrap, l.bootstrap) && bytes.Equal(arguments, l.arguments(e))
	return e, same, true
}

// write writes the files of an epoch, readable for Envoy's group.
func (l *launch) write(e epoch) error {
	for path, data := range map[string][]byte{l.bootstrapFile(e.number): l.bootstrap,
		l.argumentsFile(e.number): l.arguments(e)} {
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
