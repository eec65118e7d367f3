package relay

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// filled is a cache with two clusters, and endpoints of which one name does not exist.
func filled(t testing.TB) *cache {
	t.Helper()
	c := newCache()
	reply := func(typeURL string, resources ...*resource.Resource) *response {
		r := &response{TypeUrl: typeURL, Nonce: "1"}
		for _, res := range resources {
			r.Resources = append(r.Resources, &discoveryv3.Resource{Name: res.Name, Version: res.Version(),
				Resource: &anypb.Any{TypeUrl: typeURL, Value: res.Body()}})
		}
		return r
	}
	c.put(reply(resource.ClusterType, xdstest.Cluster("a", time.Second), xdstest.Cluster("b", time.Second)),
		&subscription{all: true})
	eds := reply(resource.EndpointType, xdstest.Endpoints("a", 1))
	eds.RemovedResources = []string{"gone"}
	c.put(eds, &subscription{names: map[string]struct{}{"a": {}, "gone": {}}})
	return c
}

// What is written is read again: the same responses would be sent.
func TestCacheFile(t *testing.T) {
	t.Parallel()
	path, now := filepath.Join(t.TempDir(), "cache"), time.Now()
	if _, _, err := load(path, "me", now, time.Hour); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("without a file: %v", err)
	}
	c := filled(t)
	if err := c.save(path, "me", now); err != nil {
		t.Fatal(err)
	}
	got, confirmed, err := load(path, "me", now.Add(time.Minute), time.Hour)
	if err != nil || !confirmed.Equal(now) {
		t.Fatalf("%v, confirmed at %s, want %s", err, confirmed, now)
	}
	for _, typeURL := range []string{resource.ClusterType, resource.EndpointType} {
		want, wantAll, wantErr := c.reply(typeURL, everything)
		have, all, err := got.reply(typeURL, everything)
		if !proto.Equal(have, want) || all != wantAll || errors.Join(err, wantErr) != nil {
			t.Errorf("%s: got %+v, all %v; want %+v, %v", typeURL, have, all, want, wantAll)
		}
	}
	select {
	case <-got.changed:
		t.Error("what was read is to be written again")
	default:
	}
}

// A file that is damaged, truncated, of another workload, or of a wrong time is refused with the
// reason.
func TestCacheFileRefused(t *testing.T) {
	t.Parallel()
	path, now := filepath.Join(t.TempDir(), "cache"), time.Now()
	if err := filled(t).save(path, "me", now); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		raw   []byte
		owner string
		now   time.Time
		want  string
	}{
		"of another":        {good, "you", now, `it is of "me", this workload is "you"`},
		"too old":           {good, "me", now.Add(2 * time.Hour), "it is too old"},
		"empty":             {nil, "me", now, "damaged"},
		"another format":    {sealed(t, fileContent{Version: 9}), "me", now, "its form is 9"},
		"with more":         {append(bytes.Clone(good), 0), "me", now, "damaged"},
		"cut in the middle": {good[:len(good)/2], "me", now, "damaged"},
	}
	for i := 10; i < len(good)-16; i += 7 { // the last bits of the data may be padding
		flipped := bytes.Clone(good)
		flipped[i] ^= 4
		c := cases["with more"]
		c.raw = flipped
		cases[fmt.Sprint("byte ", i, " flipped")] = c
	}
	for name, tc := range cases {
		path := filepath.Join(t.TempDir(), "cache")
		if err := os.WriteFile(path, tc.raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := load(path, tc.owner, tc.now, time.Hour); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// Whatever a file holds, reading it ends in a cache or an error.
func FuzzCacheFile(f *testing.F) {
	f.Add(sealed(f, fileContent{fileVersion, "me", time.Now(), filled(f).snapshot()}))
	f.Add([]byte{2, '{', '}'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := decodeFile(content)
		if (c == nil) == (err == nil) {
			t.Fatalf("%v, %v", c, err)
		}
	})
}

// sealed is a file with that content.
func sealed(t testing.TB, content fileContent) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if err := errors.Join(gob.NewEncoder(w).Encode(content), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
