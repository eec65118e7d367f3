package examples

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/goldentest"
)

// network is where the examples live. A test replaces it by the network of its mesh.
const network = "127.0.0."

// example is a folder of examples/ that runs.
type example struct {
	*harness.Mesh
	t       *testing.T
	folder  string
	subnet  string
	replace *strings.Replacer
}

// open starts a control plane on the configuration of an example. What the example takes from the
// machine, such as the path of a file, is replaced by pairs of old and new.
func open(t *testing.T, name string, pairs ...string) *example {
	t.Helper()
	return openIn(t, harness.New(t, nil), name, pairs...)
}

// openIn is open in a mesh that runs already.
func openIn(t *testing.T, m *harness.Mesh, name string, pairs ...string) *example {
	t.Helper()
	ip := m.IP()
	e := &example{Mesh: m, t: t, folder: filepath.Join("..", "..", "..", "examples", name),
		subnet: ip[:strings.LastIndexByte(ip, '.')+1]}
	e.replace = strings.NewReplacer(append(pairs, network, e.subnet)...)
	files, err := filepath.Glob(filepath.Join(e.folder, "config", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no configuration of example %s: %v", name, err)
	}
	for _, f := range files {
		m.Write(filepath.Base(f), e.read(f))
	}
	return e
}

// read is a file of the example as this mesh needs it.
func (e *example) read(path string) string {
	e.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		e.t.Fatal(err)
	}
	return e.replace.Replace(string(data))
}

// at is an address of the example, "127.0.0.10", in this mesh.
func (e *example) at(address string) string {
	e.t.Helper()
	if !strings.HasPrefix(address, network) {
		e.t.Fatalf("%s is not an address of an example", address)
	}
	return e.replace.Replace(address)
}

// backend simulates an application at an address of the example.
func (e *example) backend(name, address string) *harness.Backend {
	return harness.NewBackend(e.t, name, e.at(address))
}

// proxy starts the Envoy of that name as proxies.yaml has it.
func (e *example) proxy(name string) *harness.Proxy {
	e.t.Helper()
	all := goldentest.Proxies(e.t, filepath.Join(e.folder, "proxies.yaml"))
	i := slices.IndexFunc(all, func(p goldentest.Proxy) bool { return p.Name == name })
	if i < 0 {
		e.t.Fatalf("no proxy %s in proxies.yaml", name)
	}
	p := all[i]
	w := harness.Workload{Name: p.Name, Namespace: p.Namespace, IP: e.at(p.Addresses[0]), Router: p.Type == "router"}
	var labels []string
	for k, v := range p.Labels {
		labels = append(labels, k+"="+v)
	}
	w.Labels = strings.Join(labels, ",")
	if p.HTTPProxyPort != 0 {
		w.Flags = []string{"--set", "workload.httpProxyPort=" + strconv.Itoa(int(p.HTTPProxyPort))}
	}
	if p.Group != "" {
		w.Group = p.Namespace + "/" + p.Group
		return e.Join(w)
	}
	return e.Proxy(w)
}
