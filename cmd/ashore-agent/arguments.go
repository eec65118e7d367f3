package main

import (
	"os"
	"strings"
	"unsafe"
)

// takeArguments returns the program's arguments, and takes the join token out of where every user of the machine can read
// them (/proc/PID/cmdline) for as long as the program runs.
func takeArguments() []string {
	args := make([]string, len(os.Args)-1)
	for i, a := range os.Args[1:] {
		args[i] = strings.Clone(a)
	}
	for i, n := range tokens(args) {
		own := os.Args[i+1]
		// On Linux these bytes are the kernel's own of this process, in writable memory; nothing else refers to them from here on.
		clear(unsafe.Slice(unsafe.StringData(own), len(own))[n:])
	}
	return args
}

// tokens are the arguments that hold a join token: at which byte it begins, by their number.
func tokens(args []string) map[int]int {
	const flag = "--token"
	out := map[int]int{}
	for i, a := range args {
		switch {
		case strings.HasPrefix(a, flag+"=") && len(a) > len(flag)+1:
			out[i] = len(flag) + 1
		case a == flag && i+1 < len(args) && args[i+1] != "":
			out[i+1] = 0
		}
	}
	return out
}
