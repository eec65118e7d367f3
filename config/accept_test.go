package config

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"
)

// entryOf is a valid ServiceEntry.
func entryOf() *networking.ServiceEntry {
	return &networking.ServiceEntry{
		Hosts:      []string{"web.test"},
		Ports:      []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		Resolution: networking.ServiceEntry_DNS,
	}
}

// What text cannot say is refused in a message as well, and what is right is completed.
func TestAccept(t *testing.T) {
	t.Parallel()
	newer := protowire.AppendVarint(protowire.AppendTag(nil, 4001, protowire.VarintType), 1)
	for name, c := range map[string]struct {
		change func(o *Object, s *networking.ServiceEntry)
		want   string
	}{
		"right": {func(*Object, *networking.ServiceEntry) {}, ""},
		"unknown field": {func(_ *Object, s *networking.ServiceEntry) {
			s.Ports[0].ProtoReflect().SetUnknown(newer)
		}, "spec.ports[0]: unknown field of number 4001"},
		"unknown value": {func(_ *Object, s *networking.ServiceEntry) { s.Location = 77 }, "spec.location: unknown value 77 of Location"},
		"validated":     {func(_ *Object, s *networking.ServiceEntry) { s.Hosts = nil }, "spec.hosts"},
		"name":          {func(o *Object, _ *networking.ServiceEntry) { o.Name = "A/b" }, "metadata.name"},
		"no spec":       {func(o *Object, _ *networking.ServiceEntry) { o.Spec = nil }, "spec"},
		"list": {func(_ *Object, s *networking.ServiceEntry) {
			s.Addresses = slices.Repeat([]string{"10.0.0.1"}, MaxItems+1)
		}, "spec.addresses: the list has 20001 items"},
		"size": {func(_ *Object, s *networking.ServiceEntry) {
			s.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"a": strings.Repeat("x",
				MaxFileSize)}}
		}, "bytes, more than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := entryOf()
			o := &Object{Key: Key{ServiceEntry, "shop", "web"}, Spec: s}
			c.change(o, s)
			problems, ok := Accept(o)
			if c.want == "" {
				if !ok || len(problems) != 0 || o.Hash == 0 || o.Hash != HashOf(o) {
					t.Errorf("ok %v, hash %d, problems %v", ok, o.Hash, problems)
				}
				return
			}
			if ok || !slices.ContainsFunc(problems, func(p Problem) bool {
				return strings.Contains(p.String(),
					c.want)
			}) {
				t.Errorf("ok %v, problems %v, want one with %q", ok, problems, c.want)
			}
		})
	}
}

// A duration whose parts do not fit is no duration: read as one, it would be some other.
func TestAcceptDuration(t *testing.T) {
	t.Parallel()
	o := &Object{Key: Key{VirtualService, "shop", "web"},
		Spec: &networking.VirtualService{Hosts: []string{"web.test"}, Http: []*networking.HTTPRoute{{
			Timeout: &durationpb.Duration{Seconds: 1, Nanos: -5},
			Route:   []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "web.test"}}},
		}}}}
	problems, ok := Accept(o)
	if ok || !strings.Contains(problems[0].String(), "spec.http[0].timeout: not a time") {
		t.Errorf("ok %v, problems %v", ok, problems)
	}
}

// What Parse takes, Accept takes when it comes as bytes, and the other way round hashes are equal.
func TestAcceptIsParse(t *testing.T) {
	t.Parallel()
	text, err := Encode([]*Object{{Key: Key{ServiceEntry, "shop", "web"}, Spec: entryOf()}})
	if err != nil {
		t.Fatal(err)
	}
	read := Parse("a.yaml", text).Objects[0]
	raw, err := proto.Marshal(read.Spec)
	if err != nil {
		t.Fatal(err)
	}
	o := &Object{Key: read.Key, Spec: new(networking.ServiceEntry)}
	if err := proto.Unmarshal(raw, o.Spec); err != nil {
		t.Fatal(err)
	}
	if _, ok := Accept(o); !ok || o.Hash != read.Hash {
		t.Errorf("ok %v, hash %d, want %d", ok, o.Hash, read.Hash)
	}
}
