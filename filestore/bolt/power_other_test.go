//go:build !(linux && amd64)

package bolt

import "errors"

// childTrace needs to know the machine's registers.
func childTrace(string) error { return errors.New("system calls are traced on linux/amd64 only") }
