package fleet

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// Cost is what a process used so far: CPU seconds, and resident memory in megabytes, now and at its
// peak.
type Cost struct{ CPU, MB, PeakMB float64 }

// CostOf returns the cost of a process. The CPU time of a thread that ended does not count; a Go
// server has few, and they live long.
func CostOf(pid int) (c Cost, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return c, fmt.Errorf("cost of process %d: %w", pid, err)
	}
	status, err := p.NewStatus()
	if err != nil {
		return c, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return c, fmt.Errorf("threads of process %d: %w", pid, err)
	}
	for _, t := range threads {
		if s, err := t.Schedstat(); err == nil { // else the thread ended since it was listed
			c.CPU += float64(s.RunningNanoseconds) / 1e9
		}
	}
	if c.CPU == 0 {
		return c, fmt.Errorf("CPU time of process %d: the kernel has no statistics", pid)
	}
	c.MB, c.PeakMB = float64(status.VmRSS)/(1<<20), float64(status.VmHWM)/(1<<20)
	return c, nil
}
