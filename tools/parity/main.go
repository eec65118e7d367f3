// Command parity compares Ashore's validation with Istio's.
//
// It reads all objects and MeshConfigs that the pinned modules of Istio contain: in files, examples
// and strings of tests. Istio's verdict is that of istiod's validation and of the schemas in its
// custom resource definitions. A table by kind counts what the two accept and refuse. Below it are
// the documents on which they differ, with the reason of the one that refuses. A second report is
// about the objects that Istio's unit tests of its validation use.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	both := flag.Bool("both", false, "also list the documents that both refuse")
	flag.Parse()
	if err := run(*both); err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(1)
	}
}

func run(both bool) error {
	istio, err := moduleDir("istio.io/istio")
	if err != nil {
		return err
	}
	api, err := moduleDir("istio.io/api")
	if err != nil {
		return err
	}
	documents, err := collect([]module{{"istio", istio}, {"api", api}})
	if err != nil {
		return err
	}
	oracle, err := newIstio(istio)
	if err != nil {
		return err
	}
	cases, err := unitTestCases(istio)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	printReport(out, "Documents", oracle.compare(documents), both)
	printReport(out, "Objects of Istio's unit tests", oracle.compare(cases), both)
	return out.Flush()
}

// moduleDir is the folder of a module in Go's module cache.
func moduleDir(path string) (string, error) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("look up module %s: %w", path, err)
	}
	return filepath.Clean(strings.TrimSpace(string(out))), nil
}
