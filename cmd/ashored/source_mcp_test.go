package main

import (
	"fmt"
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

// Objects that are kept over a restart come back equal, as those of their source.
func TestObjectsCodec(t *testing.T) {
	t.Parallel()
	in := config.Parse("x", []byte(fmt.Sprintf(entryFile, "web")+"---\n"+fmt.Sprintf(entryFile, "db"))).Objects
	b, err := encodeObjects(in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := decodeObjects("mcp:a")(b)
	if err != nil || len(out) != len(in) {
		t.Fatalf("%d objects, %v", len(out), err)
	}
	for i, o := range out {
		if o.Key != in[i].Key || o.Hash != in[i].Hash || o.Origin != (config.Origin{Source: "mcp:a"}) {
			t.Errorf("%v comes back as %v", in[i], o)
		}
	}
	if none, err := encodeObjects(nil); err != nil {
		t.Error(err)
	} else if out, err := decodeObjects("mcp:a")(none); err != nil || len(out) != 0 {
		t.Errorf("nothing comes back as %v, %v", out, err)
	}
	for _, bad := range []string{"", "{", `"kind: ServiceEntry"`} {
		if out, err := decodeObjects("mcp:a")([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, out)
		}
	}
}
