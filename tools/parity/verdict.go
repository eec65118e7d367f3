package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeyaml "sigs.k8s.io/yaml"

	mesh "istio.io/api/mesh/v1alpha1"
	istioconfig "istio.io/istio/pkg/config"
	"istio.io/istio/pkg/config/crd"
	istiomesh "istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/config/schema/collections"
	"istio.io/istio/pkg/log"
	"istio.io/istio/pkg/util/protomarshal"

	"github.com/ashore-mesh/ashore/config"
	_ "github.com/ashore-mesh/ashore/xds/envoytypes" // for the values of EnvoyFilters
)

// istio is Istio's validation: the schemas of its custom resources, and the checks of istiod.
type istio struct{ schemas *crd.Validator }

func newIstio(dir string) (*istio, error) {
	file := filepath.Join(dir, "manifests", "charts", "base", "files", "crd-all.gen.yaml")
	schemas, err := crd.NewValidatorFromFiles(file)
	if err != nil {
		return nil, fmt.Errorf("read Istio's custom resource definitions: %w", err)
	}
	for _, scope := range log.Scopes() { // Istio logs warnings to standard output
		scope.SetOutputLevel(log.NoneLevel)
	}
	return &istio{schemas}, nil
}

// check returns why Istio refuses a document; nil when it accepts it.
func (i *istio) check(d document) error {
	switch d.kind {
	case meshConfig:
		if err := protomarshal.ApplyYAMLStrict(string(d.text), &mesh.MeshConfig{}); err != nil {
			return err
		}
		_, err := istiomesh.ApplyMeshConfigDefaults(string(d.text))
		return err
	case proxyAnnotation:
		return i.check(document{kind: meshConfig, text: within("defaultConfig", d.text)})
	}
	object := &unstructured.Unstructured{}
	if err := kubeyaml.UnmarshalStrict(d.text, object); err != nil {
		return err
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(config.DefaultNamespace)
	}
	gvk := object.GroupVersionKind()
	schema, ok := collections.All.FindByGroupVersionAliasesKind(
		istioconfig.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind})
	if !ok {
		return fmt.Errorf("no kind %s", gvk)
	}
	text, err := kubeyaml.Marshal(object.Object["spec"])
	if err != nil {
		return err
	}
	text, err = kubeyaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	spec, err := schema.NewInstance()
	if err != nil {
		return err
	}
	if err := istioconfig.ApplyJSONStrict(spec, string(text)); err != nil {
		return err
	}
	meta := istioconfig.Meta{GroupVersionKind: schema.GroupVersionKind(), Name: object.GetName(),
		Namespace: object.GetNamespace(), Labels: object.GetLabels(), Annotations: object.GetAnnotations()}
	if _, err := schema.ValidateConfig(istioconfig.Config{Meta: meta, Spec: spec}); err != nil {
		return err
	}
	errs := apivalidation.ValidateObjectMetaAccessor(object, true, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))
	return errors.Join(errs.ToAggregate(), i.schemas.ValidateCustomResource(object))
}

// within is YAML that has text as the value of a field.
func within(field string, text []byte) []byte {
	lines := strings.ReplaceAll("\n"+string(text), "\n", "\n  ")
	return []byte(field + ":" + lines + "\n")
}

// unsupported marks a warning about a field that is accepted and ignored.
const unsupported = "not supported yet"

// ashore returns why Ashore refuses a document, and which fields it ignores.
func ashore(d document) (refused error, ignored []string) {
	var problems []config.Problem
	switch d.kind {
	case meshConfig:
		var node yaml.Node
		if err := yaml.Unmarshal(d.text, &node); err != nil {
			return err, nil
		}
		_, problems = config.ParseMesh("", node.Content[0])
	case proxyAnnotation:
		group := fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\n"+
			"metadata: {name: example, annotations: {%s: %q}}\nspec: {template: {}}\n", proxyAnnotation, d.text)
		problems = config.Parse("", []byte(group)).Problems
	default:
		problems = config.Parse("", d.text).Problems
	}
	var errs []string
	for _, p := range problems {
		text := strings.TrimSpace(p.Field + ": " + p.Text)
		switch {
		case p.IsError():
			errs = append(errs, text)
		case strings.Contains(p.Text, unsupported):
			ignored = append(ignored, text)
		}
	}
	if len(errs) == 0 {
		return nil, ignored
	}
	return errors.New(strings.Join(slices.Compact(errs), "; ")), nil
}
