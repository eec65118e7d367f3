package main

import (
	"os"
	"path/filepath"
)

// defaultSocket is the admin socket of an installed ashored.
const defaultSocket = "/run/ashore/admin.sock"

// devSockets returns the sockets of development runs, relative to the folder of the run: of
// "ashored --dev" and of "make run".
func devSockets() []string {
	return []string{".ashore/admin.sock", ".run/state/admin.sock"}
}

// findSocket returns the socket of a development run in dir or a folder above it, else installed.
func findSocket(dir, installed string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		for _, s := range devSockets() {
			path := filepath.Join(dir, s)
			if _, err := os.Stat(path); err == nil {
				return path, nil
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return installed, nil
		}
		dir = up
	}
}
