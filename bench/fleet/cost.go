package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// clockTicks is the kernel's USER_HZ, 100 on every architecture that Go supports.
const clockTicks = 100

// CPUSeconds is the CPU time of a process: by its threads' scheduler statistics (nanoseconds),
// which a Go server's few long-lived threads keep complete, or by clock ticks where the kernel has
// none.
func CPUSeconds(pid int) (float64, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var ns float64
	for _, f := range threads {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread ended since it was listed
		}
		if v := strings.Fields(string(b)); len(v) == 3 {
			n, err := strconv.ParseFloat(v[0], 64)
			if err != nil {
				return 0, fmt.Errorf("read %s: %w", f, err)
			}
			ns += n
		}
	}
	if ns > 0 {
		return ns / 1e9, nil
	}
	return tickSeconds(pid)
}

func tickSeconds(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("CPU time of the server: %w", err)
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the name before it may hold anything
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, fmt.Errorf("CPU time of the server: /proc/%d/stat is short", pid)
	}
	var ticks float64
	for _, v := range f[11:13] { // utime, stime: proc(5) fields 14 and 15
		n, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return 0, fmt.Errorf("CPU time of the server: %w", err)
		}
		ticks += n
	}
	return ticks / clockTicks, nil
}

// MemoryMB is a field of a process's status in megabytes: VmRSS now, VmHWM at its peak.
func MemoryMB(pid int, field string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of the server: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				return 0, fmt.Errorf("memory of the server: %w", err)
			}
			return kb / 1024, nil
		}
	}
	return 0, fmt.Errorf("memory of the server: /proc/%d/status has no %s", pid, field)
}
