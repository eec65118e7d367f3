package config_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
)

// A saved object is read as it was, with the place where it was defined, so that messages after a
// restart name it.
func TestCodec(t *testing.T) {
	t.Parallel()
	o := configtest.Object("a", "a.test")
	o.Origin, o.Revision = config.Origin{Source: "file:/etc/x", File: "web.yaml", Line: 12}, "7"
	decode := func(b []byte) (*config.Object, error) {
		o := &config.Object{}
		return o, json.Unmarshal(b, o)
	}
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(b)
	if diff := cmp.Diff(o, got, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	o.Spec.(*networking.ServiceEntry).Hosts = []string{"a_.test*"}
	if b, err = json.Marshal(o); err != nil {
		t.Fatal(err)
	}
	if got, err := decode(b); err == nil || !strings.Contains(err.Error(), "spec.hosts[0]") {
		t.Errorf("an invalid object is read as %v, error %v", got, err)
	}
	for _, bad := range []string{"", "{}", `{"kind":"Gateway","namespace":"a","name":"b","spec":"AQ=="}`} {
		if got, err := decode([]byte(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}
