package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeyaml "k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// schemas check objects as Kubernetes does by Istio's custom resource definitions.
type schemas map[schema.GroupVersionKind]*objectSchema

type objectSchema struct {
	types      validation.SchemaCreateValidator
	structural *structuralschema.Structural
	rules      *cel.Validator
}

// readSchemas reads a file of custom resource definitions.
func readSchemas(file string) (schemas, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := schemas{}
	decoder := kubeyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var definition apiextensionsv1.CustomResourceDefinition
		if err := decoder.Decode(&definition); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, version := range definition.Spec.Versions {
			kind := schema.GroupVersionKind{Group: definition.Spec.Group, Version: version.Name,
				Kind: definition.Spec.Names.Kind}
			if out[kind], err = newObjectSchema(version); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, kind, err)
			}
		}
	}
}

func newObjectSchema(version apiextensionsv1.CustomResourceDefinitionVersion) (*objectSchema, error) {
	var internal apiextensions.CustomResourceValidation
	err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(version.Schema,
		&internal, nil)
	if err != nil {
		return nil, err
	}
	types, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	return &objectSchema{types, structural, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// check returns what is wrong with an object, and fills in its defaults.
func (s schemas) check(kind schema.GroupVersionKind, object map[string]any) error {
	o, ok := s[kind]
	if !ok {
		return fmt.Errorf("no custom resource definition of %s", kind)
	}
	var unknown []string
	options := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	for _, path := range pruning.PruneWithOptions(runtime.DeepCopyJSON(object), o.structural, true, options) {
		if !strings.HasPrefix(path, "metadata.") {
			unknown = append(unknown, path)
		}
	}
	if len(unknown) > 0 {
		return fmt.Errorf("unknown fields: %s", strings.Join(unknown, ", "))
	}
	errs := apivalidation.ValidateObjectMetaAccessor(&unstructured.Unstructured{Object: object}, true,
		apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	defaulting.Default(object, o.structural)
	errs = append(errs, validation.ValidateCustomResource(nil, object, o.types)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, o.structural, object)...)
	if len(errs) == 0 {
		errs, _ = o.rules.Validate(context.Background(), nil, o.structural, object, nil, celconfig.RuntimeCELCostBudget)
	}
	return errs.ToAggregate()
}
