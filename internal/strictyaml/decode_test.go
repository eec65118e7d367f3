package strictyaml

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type example struct {
	State string `yaml:"state"`
	XDS   struct {
		Address string        `yaml:"address"`
		Gap     time.Duration `yaml:"gap"`
		Streams int           `yaml:"streams"`
	} `yaml:"xds"`
	Verbose bool              `yaml:"verbose"`
	Labels  map[string]string `yaml:"labels"`
	Mesh    yaml.Node         `yaml:"mesh"`

	Untagged string // none of the file's
}

func defaults() example {
	var e example
	e.State = "/var/lib/example"
	e.XDS.Gap = time.Second
	return e
}

func TestDecode(t *testing.T) {
	t.Parallel()
	e := defaults()
	_, err := Decode("a.yaml",
		[]byte("# comment\nxds:\n  gap: 50ms\n  streams: 3\nverbose: true\nmesh:\n  accessLogFile: /dev/stdout\n"), &e)
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.XDS.Gap, want.XDS.Streams, want.Verbose = 50*time.Millisecond, 3, true
	mesh := e.Mesh
	e.Mesh = yaml.Node{}
	if d := cmp.Diff(want, e); d != "" {
		t.Errorf("settings (-want +got):\n%s", d)
	}
	if mesh.Line != 7 || len(mesh.Content) != 2 {
		t.Errorf("raw section starts on line %d with %d nodes, want line 7 and 2", mesh.Line, len(mesh.Content))
	}
}

// The fields of an embedded struct are treated like those of the outer one, by name and by line.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	type Inner struct {
		Address string `yaml:"address"`
		Token   string `yaml:"token"`
	}
	var e struct {
		Store struct {
			Kind string `yaml:"kind"`
			Inner
		} `yaml:"store"`
	}
	e.Store.Token = "kept"
	places, err := Decode("a.yaml", []byte("store:\n  kind: x\n  address: a\n"), &e)
	if err != nil || e.Store.Kind != "x" || e.Store.Address != "a" || e.Store.Token != "kept" ||
		places.Of("store.address") != "a.yaml:3" {
		t.Errorf("got %+v, %v, at %s", e, err, places.Of("store.address"))
	}
	if _, err = Decode("a.yaml", []byte("store:\n  adress: a\n"), &e); err == nil ||
		err.Error() != "a.yaml:2: store.adress: unknown setting; did you mean \"address\"?" {
		t.Errorf("got %v", err)
	}
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, in, want string }{
		{"empty", "", ""},
		{"only comments", "# nothing\n", ""},
		{"empty section", "xds:\n", ""},
		{"unknown, near", "stat: /x\n", `a.yaml:1: stat: unknown setting; did you mean "state"?`},
		{"unknown, nested", "xds:\n  gap: 1s\n  adress: x\n", `a.yaml:3: xds.adress: unknown setting; did you mean "address"?`},
		{"unknown, far", "qqqqqq: 1\n", `a.yaml:1: qqqqqq: unknown setting; known here: labels, mesh, state, verbose, xds`},
		{"no name of the file", "untagged: 1\n", `a.yaml:1: untagged: unknown setting; known here: labels, mesh, state, verbose, xds`},
		{"short and far", "foo: 1\n", `a.yaml:1: foo: unknown setting; known here: labels, mesh, state, verbose, xds`},
		{"swapped letters", "mehs: 1\n", `a.yaml:1: mehs: unknown setting; did you mean "mesh"?`},
		{"labels twice", "labels:\n  a: b\n  a: c\n", `a.yaml:3: labels.a: set twice, first on line 2`},
		{"labels", "labels: [a]\n", `a.yaml:1: labels: want names with values (name: value), got a list`},
		{"twice", "state: a\nstate: b\n", `a.yaml:2: state: set twice, first on line 1`},
		{"duration", "xds: {gap: 50}\n", `a.yaml:1: xds.gap: want a duration such as 50ms or 1m30s, got "50"`},
		{"negative duration", "xds: {gap: -1s}\n", `a.yaml:1: xds.gap: want a duration such as 50ms or 1m30s, got "-1s"`},
		{"number", "xds: {streams: many}\n", `a.yaml:1: xds.streams: want a whole number, got "many"`},
		{"bool", "verbose: 3\n", `a.yaml:1: verbose: want true or false, got "3"`},
		{"text", "state: [a]\n", `a.yaml:1: state: want a text, got a list`},
		{"section", "xds: yes\n", `a.yaml:1: xds: want settings with names (name: value), got "yes"`},
		{"not a mapping", "- a\n", `a.yaml:1: want settings with names (name: value), got a list`},
		{"tab", "a:\n\tb: c\n", `a.yaml:2: a tab where YAML wants spaces: replace it with spaces`},
		{"syntax", "a: b\n  c: [\n", `a.yaml:2: not valid YAML near this line: mapping values are not allowed in this context`},
		{"second document", "state: a\n---\nstate: b\n", "a.yaml:2: a second document: settings are one YAML document, remove the \"---\" between"},
		// All errors are reported at once.
		{"several", "stat: a\nverbos: true\n", "a.yaml:1: stat: unknown setting; did you mean \"state\"?\na.yaml:2: verbos: unknown setting; did you mean \"verbose\"?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e := defaults()
			_, err := Decode("a.yaml", []byte(tc.in), &e)
			got := ""
			if err != nil {
				got = err.Error()
				var one *Error
				if !errors.As(err, &one) {
					t.Errorf("%v holds no *Error", err)
				}
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Every setting has a place, as near as the file has one.
func TestPlaces(t *testing.T) {
	t.Parallel()
	e := defaults()
	p, err := Decode("a.yaml", []byte("state: /x\nxds:\n  address: x\n\n  gap: 1s\n"), &e)
	if err != nil {
		t.Fatal(err)
	}
	for setting, want := range map[string]string{"state": "a.yaml:1", "xds.gap": "a.yaml:5", "xds.streams": "a.yaml:2",
		"verbose": "a.yaml", "mesh.of.nothing": "a.yaml"} {
		if got := p.Of(setting); got != want {
			t.Errorf("%s is at %s, want %s", setting, got, want)
		}
	}
	if got := (*Places)(nil).Of("state"); got != "" {
		t.Errorf("without a file it is at %q", got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("xds: {gap: 1s}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		e := defaults()
		_, _ = Decode("a.yaml", data, &e) // any bytes: an error or not, never a panic
	})
}

// Set overrides one setting of a section that is decoded elsewhere, and keeps the others.
func TestSetMerges(t *testing.T) {
	t.Parallel()
	var got struct {
		Mesh yaml.Node `yaml:"mesh"`
	}
	p, err := Decode("f.yaml", []byte("mesh: {trustDomain: a, proxy: {x: 1, y: 2}}"), &got)
	if err != nil {
		t.Fatal(err)
	}
	for setting, value := range map[string]string{"mesh.proxy.y": "3", "mesh.log": "text"} {
		if err := p.Set("--set", setting, value, &got); err != nil {
			t.Fatal(err)
		}
	}
	var mesh map[string]any
	if err := got.Mesh.Decode(&mesh); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"trustDomain": "a", "proxy": map[string]any{"x": 1, "y": 3}, "log": "text"}
	if !cmp.Equal(mesh, want) {
		t.Errorf("got %v, want %v", mesh, want)
	}
}
