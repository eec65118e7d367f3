package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/config"
)

// unitTestCases runs Istio's unit tests of its validation, and compares each object that they validate. dir is Istio's module.
//
// The package is compiled under a name in this module, by go build's overlay, with a line added
// that records objects and verdicts. The module cache stays as it is.
func unitTestCases(dir string) ([]result, error) {
	temporary, err := os.MkdirTemp("", "parity")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temporary)
	overlay, err := writeOverlay(temporary, filepath.Join(dir, "pkg", "config", "validation"))
	if err != nil {
		return nil, fmt.Errorf("prepare Istio's unit tests: %w", err)
	}
	binary, records := filepath.Join(temporary, "tests"), filepath.Join(temporary, "records")
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, "./"+recorded)
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build Istio's unit tests: %w: %s", err, out)
	}
	tests := exec.Command(binary)
	tests.Dir, tests.Env = temporary, append(os.Environ(), "PARITY_RECORDS="+records)
	if out, err := tests.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("run Istio's unit tests: %w: %s", err, out)
	}
	data, err := os.ReadFile(records)
	if err != nil {
		return nil, err
	}
	return compareRecords(data)
}

// recorded is the name of Istio's package in this module.
const recorded = "recorded"

// recorder is added to Istio's package.
const recorder = `package validation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"google.golang.org/protobuf/proto"

	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/util/protomarshal"
)

func record(name string, f ValidateFunc) ValidateFunc {
	out, err := os.OpenFile(os.Getenv("PARITY_RECORDS"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	return func(c config.Config) (Warning, error) {
		warning, refused := f(c)
		pc, file, _, _ := runtime.Caller(1)
		spec, ok := c.Spec.(proto.Message)
		if !ok || !strings.HasSuffix(file, "_test.go") {
			return warning, refused
		}
		text, err := protomarshal.Marshal(spec)
		if err != nil {
			return warning, refused
		}
		entry := map[string]any{"file": filepath.Base(file), "test": runtime.FuncForPC(pc).Name(),
			"kind": strings.TrimPrefix(name, "Validate"), "name": c.Name, "namespace": c.Namespace,
			"labels": c.Labels, "annotations": c.Annotations, "spec": json.RawMessage(text)}
		if refused != nil {
			entry["refused"] = fmt.Sprint(refused)
		}
		if err := json.NewEncoder(out).Encode(entry); err != nil {
			panic(err)
		}
		return warning, refused
	}
}
`

// writeOverlay writes the overlay file and what it needs into folder to. It returns the file's path.
func writeOverlay(to, from string) (string, error) {
	files, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil {
		return "", err
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for _, file := range files {
		switch filepath.Base(file) {
		case "openapi_test.go", "fuzz_test.go": // they read files of the source tree
		default:
			replace[filepath.Join(here, recorded, filepath.Base(file))] = file
		}
	}
	code, err := os.ReadFile(filepath.Join(from, "validation.go"))
	if err != nil {
		return "", err
	}
	const line = "validate := validateMetadata(f)"
	if bytes.Count(code, []byte(line)) != 1 {
		return "", errors.New("validation.go does not have the line " + line)
	}
	code = bytes.Replace(code, []byte(line), []byte("validate := record(name, validateMetadata(f))"), 1)
	for name, text := range map[string][]byte{"validation.go": code, "recorder.go": []byte(recorder)} {
		path := filepath.Join(to, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(here, recorded, name)] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(to, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

// compareRecords compares the objects that recorder wrote.
func compareRecords(data []byte) ([]result, error) {
	var out []result
	count := map[string]int{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var r struct {
			File, Test, Kind, Name, Namespace string
			Labels, Annotations               map[string]string
			Spec                              json.RawMessage
			Refused                           string
		}
		if err := decoder.Decode(&r); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what Istio's unit tests validated: %w", err)
		}
		info, ok := config.Info(config.Kind(r.Kind))
		if !ok {
			continue // a kind of Kubernetes
		}
		if r.Name == "" {
			r.Name = "example"
		}
		metadata := map[string]any{"name": r.Name, "labels": r.Labels, "annotations": r.Annotations}
		if r.Namespace != "" {
			metadata["namespace"] = r.Namespace
		}
		text, err := json.Marshal(map[string]any{"apiVersion": info.APIVersion(), "kind": r.Kind,
			"metadata": metadata, "spec": r.Spec})
		if err != nil {
			return nil, err
		}
		_, test, _ := strings.Cut(r.Test, ".Test")
		test, _, _ = strings.Cut(test, ".")
		count[test]++
		d := document{place: r.File + " Test" + test + " " + strconv.Itoa(count[test]), kind: r.Kind, text: text,
			name: shorten(string(r.Spec), 400)}
		var refused error
		if r.Refused != "" {
			refused = errors.New(r.Refused)
		}
		out = append(out, compare(d, refused))
	}
}
