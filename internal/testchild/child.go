package testchild

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start starts cmd. The kernel kills it when this process ends. Call wait instead of cmd.Wait; it
// returns the same, and may be called several times.
func Start(cmd *exec.Cmd) (wait func() error, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		// The kernel sends the signal when the thread that started the child ends, so that thread
		// must live as long. https://github.com/golang/go/issues/27505
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return sync.OnceValue(func() error { return <-ended }), nil
}
