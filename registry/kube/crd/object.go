package crd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

const (
	// revisionLabel names the control plane that an object is meant for, and ownRevision is what we
	// are called. Source: Istio, label.IoIstioRev; its default revision.
	revisionLabel, ownRevision = "istio.io/rev", "default"
	// lastApplied has a copy of the object, for kubectl.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	// maxProblems limits the problems of one object.
	maxProblems = 20
)

// object is the version of an object that was read last. It is immutable.
type object struct {
	key        config.Key
	resource   schema.GroupVersionResource // where it was read
	generation int64
	hash       uint64 // config.Object.Hash; zero if the object is invalid
	problems   []feed.Problem
	version    string // metadata.resourceVersion
	conditions []any  // status.conditions
}

// keyOf returns the key of an object.
func keyOf(kind config.Kind, u *unstructured.Unstructured) config.Key {
	return config.Key{Kind: kind, Namespace: u.GetNamespace(), Name: u.GetName()}
}

// foreign reports whether an object is meant for another control plane, as Istio does.
func foreign(u *unstructured.Unstructured) bool {
	rev, has := u.GetLabels()[revisionLabel]
	return has && rev != ownRevision
}

// convert validates an object and returns its group. source is the name of the source. It removes from
// u what is not used.
func convert(source string, info config.KindInfo, u *unstructured.Unstructured) (*object, update) {
	key := keyOf(info.Kind, u)
	o := &object{key: key, generation: u.GetGeneration(), version: u.GetResourceVersion()}
	if status, ok := u.Object["status"].(map[string]any); ok {
		o.conditions, _ = status["conditions"].([]any)
	}
	delete(u.Object, "status")
	u.SetManagedFields(nil)
	if a := u.GetAnnotations(); a[lastApplied] != "" {
		delete(a, lastApplied)
		u.SetAnnotations(a)
	}
	spec, problems := parse(key, u)
	up := update{Group: key.String(), Problems: problems}
	o.problems = problems
	if spec == nil {
		up.Invalid = []string{key.String()}
		return o, up
	}
	spec.Origin = config.Origin{Source: source}
	spec.Revision = strconv.FormatInt(o.generation, 10)
	o.hash, up.Items = spec.Hash, []*config.Object{spec}
	return o, up
}

// parse reads an object as a file of JSON. It returns nil if the object is invalid.
func parse(key config.Key, u *unstructured.Unstructured) (*config.Object, []feed.Problem) {
	invalid := func(format string, args ...any) (*config.Object, []feed.Problem) {
		return nil, []feed.Problem{{Severity: feed.Error, Object: key.String(), Text: fmt.Sprintf(format, args...)}}
	}
	text, err := json.Marshal(u.Object)
	if err != nil {
		return invalid("the object cannot be written as JSON: %v", err)
	}
	read := config.Parse("object.json", text)
	problems := read.Problems[:min(maxProblems, len(read.Problems))]
	for i := range problems {
		p := &problems[i]
		p.Object, p.File, p.Line = key.String(), "", 0
	}
	switch {
	case slices.ContainsFunc(read.Problems, feed.Problem.IsError):
		return nil, problems
	case len(read.Objects) != 1 || read.Objects[0].Key != key:
		return invalid("the object is not a %s of that name", key.Kind)
	}
	return read.Objects[0], problems
}
