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
	"regexp"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/config"
)

// unitTestCases runs Istio's unit tests of its validation and returns the objects that they validate,
// in the order of the tests. dir is the folder of Istio's module.
//
// The tests run in copies of Istio's packages that record objects. go build's overlay places the
// copies in this module, so that the module cache stays as it is.
func unitTestCases(dir string) ([]document, error) {
	validation := filepath.Join(dir, "pkg", "config", "validation")
	var out []document
	for _, folder := range []string{validation, filepath.Join(validation, "agent")} {
		documents, err := casesOf(folder)
		if err != nil {
			return nil, err
		}
		out = append(out, documents...)
	}
	return out, nil
}

// casesOf runs the tests of the package in a folder.
func casesOf(folder string) ([]document, error) {
	temporary, err := os.MkdirTemp("", "parity")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temporary)
	overlay, err := writeOverlay(temporary, folder)
	if err != nil {
		return nil, fmt.Errorf("prepare Istio's unit tests: %w", err)
	}
	binary, records := filepath.Join(temporary, "tests"), filepath.Join(temporary, "records")
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, "./"+copied)
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
	return readRecords(data)
}

// copied is the folder of the copy of Istio's package; it exists in the overlay alone.
const copied = "copied"

// recorder is added to a copy. Its package clause is in front.
const recorder = `
import (
	"encoding/json"
	"os"
	"reflect"
	"runtime"

	"google.golang.org/protobuf/proto"

	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/util/protomarshal"
)

// recordPart returns out. It records the argument of the function name, a part of an object.
func recordPart[T any](name string, part any, out T) T {
	pc, _, _, _ := runtime.Caller(1)
	write(pc, name, part, config.Meta{})
	return out
}

func write(test uintptr, name string, value any, meta config.Meta) {
	message, ok := value.(proto.Message)
	if !ok || reflect.ValueOf(message).IsNil() {
		return
	}
	text, err := protomarshal.Marshal(message)
	if err != nil {
		return // no text can have this value
	}
	out, err := os.OpenFile(os.Getenv("PARITY_RECORDS"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer out.Close()
	err = json.NewEncoder(out).Encode(map[string]any{"test": runtime.FuncForPC(test).Name(), "function": name,
		"name": meta.Name, "namespace": meta.Namespace, "labels": meta.Labels, "annotations": meta.Annotations,
		"value": json.RawMessage(text)})
	if err != nil {
		panic(err)
	}
}
`

// objectRecorder is added to the copy of the package of whole objects.
const objectRecorder = `package validation

import (
	"runtime"
	"strings"

	"istio.io/istio/pkg/config"
)

// recordObjects returns f, which records what a test gives it.
func recordObjects(name string, f ValidateFunc) ValidateFunc {
	return func(c config.Config) (Warning, error) {
		if pc, file, _, _ := runtime.Caller(1); strings.HasSuffix(file, "_test.go") {
			write(pc, name, c.Spec, c.Meta)
		}
		return f(c)
	}
}
`

// parts are the functions of Istio that validate a part of an object, with the specification around it.
var parts = map[string]struct{ kind, spec string }{
	"validateServer": {"Gateway", `{"servers": [%s]}`},
	"validateTLSOptions": {"Gateway",
		`{"servers": [{"hosts": ["a.test"], "port": {"number": 443, "name": "https", "protocol": "HTTPS"}, "tls": %s}]}`},
	"validateHTTPRoute":               {"VirtualService", `{"hosts": ["a.test"], "http": [%s]}`},
	"validateCORSPolicy":              route(`"corsPolicy": %s`),
	"validateHTTPFaultInjectionAbort": route(`"fault": {"abort": %s}`),
	"validateHTTPFaultInjectionDelay": route(`"fault": {"delay": %s}`),
	"validateHTTPRetry":               route(`"retries": %s`),
	"validateHTTPRewrite":             route(`"rewrite": %s`),
	"validateURIRegexRewrite":         route(`"rewrite": {"uriRegexRewrite": %s}`),
	"validateHTTPRedirect":            {"VirtualService", `{"hosts": ["a.test"], "http": [{"redirect": %s}]}`},
	"validateHTTPDirectResponse":      {"VirtualService", `{"hosts": ["a.test"], "http": [{"directResponse": %s}]}`},
	"validateDestination":             {"VirtualService", `{"hosts": ["a.test"], "http": [{"route": [{"destination": %s}]}]}`},
	"validateTrafficPolicy":           {"DestinationRule", `{"host": "a.test", "trafficPolicy": %s}`},
	"validateConnectionPool":          {"DestinationRule", `{"host": "a.test", "trafficPolicy": {"connectionPool": %s}}`},
	"validateLoadBalancer":            {"DestinationRule", `{"host": "a.test", "trafficPolicy": {"loadBalancer": %s}}`},
	"ValidateTLS":                     {"DestinationRule", `{"host": "a.test", "trafficPolicy": {"tls": %s}}`},
	"ValidateLocalityLbSetting":       {"DestinationRule", `{"host": "a.test", "trafficPolicy": {"loadBalancer": {"localityLbSetting": %s}, "outlierDetection": {}}}`},
	"ValidateZoneAwareLbSetting":      {"DestinationRule", `{"host": "a.test", "trafficPolicy": {"loadBalancer": {"zoneAwareLbSetting": %s}, "outlierDetection": {}}}`},
	"ValidateMeshConfigProxyConfig":   {meshConfig, `{"defaultConfig": %s}`},
	"validateConnectionSettings":      {meshConfig, `{"defaultConfig": {"connectionSettings": %s}}`},
	"validateOutlierDetection":        {"DestinationRule", `{"host": "a.test", "trafficPolicy": {"outlierDetection": %s}}`},
}

func route(field string) struct{ kind, spec string } {
	return struct{ kind, spec string }{"VirtualService",
		`{"hosts": ["a.test"], "http": [{"route": [{"destination": {"host": "a.test"}}], ` + field + `}]}`}
}

var (
	register = regexp.MustCompile(`validate := (validateMetadata\(f\))`)
	// partCall finds calls like validateHTTPRetry(tc.in) in tests. The tested part is the first
	// argument that is no constant.
	partCall = regexp.MustCompile(`:= ([vV]alidate\w+)\((?:"", )?([a-z]+\.\w+)(?:, (?:false|true|nil|c\.outlier))*\)`)
)

// writeOverlay writes the overlay file and what it needs into the folder to. It returns the file's path.
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
	add := func(name string, code []byte) error {
		path := filepath.Join(to, name)
		replace[filepath.Join(here, copied, name)] = path
		return os.WriteFile(path, code, 0o600)
	}
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		switch name := filepath.Base(file); {
		case name == "openapi_test.go" || name == "fuzz_test.go": // they need Istio's other files
			continue
		case strings.HasSuffix(name, "_test.go"):
			code = partCall.ReplaceAllFunc(code, wrapPart)
		case register.Match(code):
			code = register.ReplaceAll(code, []byte("validate := recordObjects(name, $1)"))
			if err := add("objects.go", []byte(objectRecorder)); err != nil {
				return "", err
			}
		}
		if err := add(filepath.Base(file), code); err != nil {
			return "", err
		}
	}
	if err := add("recorder.go", []byte("package "+filepath.Base(from)+"\n"+recorder)); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(to, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

// wrapPart makes the call of a function of parts one that recordPart sees.
func wrapPart(call []byte) []byte {
	match := partCall.FindSubmatch(call)
	if _, ok := parts[string(match[1])]; !ok {
		return call
	}
	return fmt.Appendf(nil, ":= recordPart(%q, %s, %s)", match[1], match[2], bytes.TrimPrefix(call, []byte(":= ")))
}

// readRecords reads what recorder wrote.
func readRecords(data []byte) ([]document, error) {
	var out []document
	number := map[string]int{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var r struct {
			Test, Function, Name, Namespace string
			Labels, Annotations             map[string]string
			Value                           json.RawMessage
		}
		err := decoder.Decode(&r)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what Istio's unit tests validated: %w", err)
		}
		kind, spec := strings.TrimPrefix(r.Function, "Validate"), r.Value
		if part, ok := parts[r.Function]; ok {
			kind, spec = part.kind, fmt.Appendf(nil, part.spec, r.Value)
		}
		_, test, _ := strings.Cut(r.Test, ".Test")
		test, _, _ = strings.Cut(test, ".")
		number[test]++
		d := document{place: "Test" + test + " " + strconv.Itoa(number[test]), kind: kind, text: spec,
			name: shorten(string(spec), 400)}
		if kind == meshConfig {
			out = append(out, d)
			continue
		}
		info, ok := config.Info(config.Kind(kind))
		if !ok {
			continue // a kind of Kubernetes
		}
		metadata := map[string]any{"name": "example", "labels": r.Labels, "annotations": r.Annotations}
		if r.Name != "" {
			metadata["name"] = r.Name
		}
		if r.Namespace != "" {
			metadata["namespace"] = r.Namespace
		}
		d.text, err = json.Marshal(map[string]any{"apiVersion": info.APIVersion(), "kind": kind, "metadata": metadata,
			"spec": spec})
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
}
