package config_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
)

// A saved object is read as it was, with the place where it was defined, so that messages after a
// restart name it.
func TestCodec(t *testing.T) {
	t.Parallel()
	o := configtest.Object("a", "a.test")
	o.Origin, o.Revision = config.Origin{Source: "file:/etc/x", File: "web.yaml", Line: 12}, "7"
	codec := config.Codec()
	b, err := codec.Encode(o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := codec.Decode(b)
	if diff := cmp.Diff(o, got, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	bad := strings.Replace(string(b), "a.test", "a_.test*", 1)
	if got, err := codec.Decode(json.RawMessage(bad)); err == nil || !strings.Contains(err.Error(), "spec.hosts[0]") {
		t.Errorf("an invalid object is read as %v, error %v", got, err)
	}
	for _, bad := range []string{"", "{}", `{"text":"a: ["}`} {
		if got, err := codec.Decode(json.RawMessage(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}
