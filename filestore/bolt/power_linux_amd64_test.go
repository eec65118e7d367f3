package bolt

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// step is one thing that a traced writer did to its store's file, or said.
type step struct {
	Op     string // "write", "truncate", "sync", "say"
	Offset int64
	Data   []byte
}

// childTrace runs a writer under ptrace and writes its steps to standard output. It is a process of its own,
// because a tracer waits for whatever child there is.
func childTrace(dir string) error {
	runtime.LockOSThread() // a tracer is a thread
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "child-write-few", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	t := tracer{pid: cmd.Process.Pid, enc: gob.NewEncoder(os.Stdout), inside: map[int]bool{}}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(t.pid, &status, syscall.WALL, nil); err != nil {
		return fmt.Errorf("wait for exec: %w", err)
	}
	if err := syscall.PtraceSetOptions(t.pid, syscall.PTRACE_O_TRACECLONE|syscall.PTRACE_O_TRACESYSGOOD); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	if err := syscall.PtraceSyscall(t.pid, 0); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return t.run()
}

// tracer records the writer's system calls.
type tracer struct {
	pid    int
	enc    *gob.Encoder
	inside map[int]bool // threads within a system call
}

func (t *tracer) run() error {
	for {
		var status syscall.WaitStatus
		tid, err := syscall.Wait4(-1, &status, syscall.WALL, nil)
		if err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		signal := 0
		switch {
		case status.Exited() && tid == t.pid:
			if code := status.ExitStatus(); code != 0 {
				return fmt.Errorf("the writer ended with %d", code)
			}
			return nil
		case status.Exited() || status.Signaled():
			if tid == t.pid {
				return fmt.Errorf("the writer ended: %v", status)
			}
			continue
		case status.StopSignal() == syscall.SIGTRAP|0x80:
			t.inside[tid] = !t.inside[tid]
			if err := t.call(tid, t.inside[tid]); err != nil {
				return err
			}
		case status.StopSignal() == syscall.SIGTRAP || status.StopSignal() == syscall.SIGSTOP:
			// an event of ptrace, or a thread that starts
		default:
			signal = int(status.StopSignal())
		}
		if err := syscall.PtraceSyscall(tid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("go on: %w", err)
		}
	}
}

// call records a system call: what is written when it begins to be written, a sync when it is done.
func (t *tracer) call(tid int, begins bool) error {
	var r syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &r); err != nil {
		if errors.Is(err, syscall.ESRCH) {
			return nil
		}
		return fmt.Errorf("registers: %w", err)
	}
	s := step{}
	switch r.Orig_rax {
	case syscall.SYS_PWRITE64:
		s = step{Op: "write", Offset: int64(r.R10)}
	case syscall.SYS_WRITE:
		s = step{Op: "say"}
	case syscall.SYS_FTRUNCATE:
		s = step{Op: "truncate", Offset: int64(r.Rsi)}
	case syscall.SYS_FSYNC, syscall.SYS_FDATASYNC:
		s = step{Op: "sync"}
	default:
		return nil
	}
	if (s.Op == "sync") == begins || s.Op == "say" != (r.Rdi == 1) || s.Op != "say" && !t.isStore(int(r.Rdi)) {
		return nil
	}
	if s.Op == "write" || s.Op == "say" {
		s.Data = make([]byte, r.Rdx)
		if _, err := syscall.PtracePeekData(tid, uintptr(r.Rsi), s.Data); err != nil {
			return fmt.Errorf("what is written: %w", err)
		}
	}
	return t.enc.Encode(s)
}

func (t *tracer) isStore(fd int) bool {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", t.pid, fd))
	return err == nil && filepath.Base(path) == FileName
}

// trace returns the file before and the steps of a writer.
func trace(t *testing.T) (before []byte, steps []step) {
	t.Helper()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before = read(t, s.path)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, stderr strings.Builder
	cmd := exec.Command(self, "child-trace", dir)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("trace a writer: %v %s", err, &stderr)
	}
	dec := gob.NewDecoder(strings.NewReader(out.String()))
	for {
		var s step
		err := dec.Decode(&s)
		if errors.Is(err, io.EOF) {
			return before, steps
		}
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, s)
	}
}

// apply does steps to a file.
func apply(file []byte, steps []step) []byte {
	for _, s := range steps {
		switch s.Op {
		case "write":
			if end := int(s.Offset) + len(s.Data); end > len(file) {
				file = append(file, make([]byte, end-len(file))...)
			}
			copy(file[s.Offset:], s.Data)
		case "truncate":
			file = append(file, make([]byte, max(0, int(s.Offset)-len(file)))...)[:s.Offset]
		}
	}
	return file
}

// No acknowledged write is lost when power is, whatever part of what was not synced is lost with it.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	before, steps := trace(t)
	random := rand.New(rand.NewPCG(3, 4))
	synced, acknowledged, syncs := 0, 0, 0
	durable := slices.Clone(before)
	for i, s := range steps {
		switch s.Op {
		case "say":
			if _, err := fmt.Sscan(string(s.Data), &acknowledged); err != nil {
				t.Fatalf("the writer said %q", s.Data)
			}
		case "sync":
			durable = apply(durable, steps[synced:i])
			synced = i
			syncs++
		}
		pending := steps[synced : i+1]
		some := slices.DeleteFunc(slices.Clone(pending), func(step) bool { return random.IntN(2) == 0 })
		for how, kept := range map[string][]step{"none": nil, "all": pending, "some": some} {
			afterPowerLoss(t, apply(slices.Clone(durable), kept), acknowledged, fmt.Sprintf("step %d, %s of %d unsynced steps kept", i, how, len(pending)))
		}
	}
	t.Logf("%d steps, %d syncs", len(steps), syncs)
	if acknowledged != 20 || syncs < 40 {
		t.Errorf("%d writes and %d syncs were seen: the test proves little", acknowledged, syncs)
	}
}

// afterPowerLoss opens a file as it is found after a power loss.
func afterPowerLoss(t *testing.T, file []byte, acknowledged int, how string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(path); err != nil {
		t.Fatalf("%s: %v", how, err)
	}
	s, err := New(Config{Dir: dir})
	if err != nil {
		t.Fatalf("%s: %v", how, err)
	}
	defer s.Close()
	checkWrites(t, s, acknowledged)
}
