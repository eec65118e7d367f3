package fleet

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// Cost returns the CPU seconds of a process so far, and its memory at its peak in megabytes. A thread
// that ended does not count; a Go server has few, and they live long.
func Cost(pid int) (cpu, peakMB float64, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, fmt.Errorf("cost of process %d: %w", pid, err)
	}
	status, err := p.NewStatus()
	if err != nil {
		return 0, 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return 0, 0, fmt.Errorf("threads of process %d: %w", pid, err)
	}
	for _, t := range threads {
		if s, err := t.Schedstat(); err == nil { // else the thread ended since it was listed
			cpu += float64(s.RunningNanoseconds) / 1e9
		}
	}
	if cpu == 0 {
		return 0, 0, fmt.Errorf("CPU time of process %d: the kernel has no statistics", pid)
	}
	return cpu, float64(status.VmHWM) / (1 << 20), nil
}
