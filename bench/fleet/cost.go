package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// CPUSeconds is the CPU time of a process, in the kernel's nanoseconds. A thread that ended does not
// count; a Go server has few, and they live long.
func CPUSeconds(pid int) (float64, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return 0, errors.Join(err, fmt.Errorf("CPU time of process %d: the kernel has no statistics", pid))
	}
	var total float64
	for _, f := range threads {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread ended since it was listed
		}
		var ns float64
		if _, err := fmt.Sscan(string(b), &ns); err != nil {
			return 0, fmt.Errorf("read %s: %w", f, err)
		}
		total += ns
	}
	return total / 1e9, nil
}

// PeakMB is the memory of a process at its peak, in megabytes.
func PeakMB(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of the server: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				return 0, fmt.Errorf("memory of the server: %w", err)
			}
			return kb / 1024, nil
		}
	}
	return 0, fmt.Errorf("memory of the server: /proc/%d/status has no VmHWM", pid)
}
