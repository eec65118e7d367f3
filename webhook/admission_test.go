package webhook

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
)

const (
	goodSpec = `{"hosts": ["web.example.com"], "http": [{"route": [{"destination": {"host": "web.example.com", "port": {"number": 80}}}]}]}`
	badSpec  = `{"hosts": [], "http": [{"timeout": "-5s", "route": [{"destination": {"host": "web.example.com"}}]}]}`
)

// objectOf is an object of Istio's networking group.
func objectOf(version, kind, metadata, spec string) string {
	return fmt.Sprintf(`{"apiVersion": "networking.istio.io/%s", "kind": %q, "metadata": {"name": "web", "namespace": "shop"%s}, "spec": %s}`, version, kind, metadata, spec)
}

// requestOf is a request about an object of that group.
func requestOf(operation, kind, object, more string) string {
	return fmt.Sprintf(`{"uid": "u-1", "kind": {"group": "networking.istio.io", "version": "v1", "kind": %q},
		"resource": {"group": "networking.istio.io", "version": "v1", "resource": "virtualservices"}, "operation": %q, "object": %s%s}`, kind, operation, object, more)
}

// announced is such a request with another group in request.kind.
func announced(request, group string) string {
	return strings.Replace(request, `"group": "networking.istio.io"`, fmt.Sprintf(`"group": %q`, group), 1)
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	const vs = "VirtualService"
	good, bad := objectOf("v1", vs, "", goodSpec), objectOf("v1", vs, "", badSpec)
	for name, tc := range map[string]struct {
		request string
		refused []string // what the message has; none: it is allowed
		warned  []string
	}{
		"good":         {request: requestOf("CREATE", vs, good, "")},
		"good, update": {request: requestOf("UPDATE", vs, good, `, "oldObject": {}`)},
		"bad":          {request: requestOf("CREATE", vs, bad, ""), refused: []string{"spec.hosts", "spec.http[0].timeout: "}},
		// A dry run is answered as the real one.
		"bad, dry run": {request: requestOf("CREATE", vs, bad, `, "dryRun": true`), refused: []string{"spec.hosts"}},
		"bad, update":  {request: requestOf("UPDATE", vs, bad, `, "oldObject": `+good), refused: []string{"spec.hosts"}},
		// What was let in long ago can be removed.
		"delete":         {request: requestOf("DELETE", vs, "null", `, "oldObject": `+bad)},
		"going":          {request: requestOf("UPDATE", vs, objectOf("v1", vs, `, "deletionTimestamp": "2026-11-21T12:00:00Z"`, badSpec), ""), warned: []string{"spec.hosts"}},
		"not yet going":  {request: requestOf("UPDATE", vs, objectOf("v1", vs, `, "deletionTimestamp": null`, badSpec), ""), refused: []string{"spec.hosts"}},
		"going, created": {request: requestOf("CREATE", vs, objectOf("v1", vs, `, "deletionTimestamp": "2026-11-21T12:00:00Z"`, badSpec), ""), refused: []string{"spec.hosts"}},
		"connect":        {request: requestOf("CONNECT", vs, bad, "")},
		"status":         {request: requestOf("UPDATE", vs, bad, `, "subResource": "status"`)},
		"of others": {request: announced(requestOf("CREATE", "Deployment", `{"apiVersion": "apps/v1", "kind": "Deployment"}`, ""), "apps"),
			warned: []string{"Deployment is none of Ashore's kinds"}},
		// What Ashore would ignore it does not let in.
		"unknown kind of Istio": {request: requestOf("CREATE", "Foo", objectOf("v1", "Foo", "", "{}"), ""), refused: []string{`kind: unknown kind "Foo"`}},
		"kind not supported": {request: strings.ReplaceAll(requestOf("CREATE", "WasmPlugin", objectOf("v1alpha1", "WasmPlugin", "", "{}"), ""), "networking", "extensions"),
			refused: []string{"WasmPlugin is not supported yet"}},
		"unknown version": {request: requestOf("CREATE", vs, objectOf("v9", vs, "", goodSpec), ""), refused: []string{`apiVersion: "networking.istio.io/v9" is not a version`}},
		"unknown field":   {request: requestOf("CREATE", vs, objectOf("v1", vs, "", `{"host": []}`), ""), refused: []string{`spec.host: unknown field "host"`, "did you mean"}},
		"key twice":       {request: requestOf("CREATE", vs, objectOf("v1", vs, "", `{"hosts": ["a.b"], "hosts": ["a.c"]}`), ""), refused: []string{"spec.hosts", "twice"}},
		// As API servers send it: the kind is that of the object, which is another than that of the
		// resource.
		"scale":           {request: announced(requestOf("UPDATE", "Scale", `{"apiVersion": "autoscaling/v1", "kind": "Scale"}`, `, "subResource": "scale"`), "autoscaling")},
		"delete, others":  {request: announced(requestOf("DELETE", "Deployment", "null", ""), "apps")},
		"connect, others": {request: announced(requestOf("CONNECT", "PodExecOptions", `{"apiVersion": "v1", "kind": "PodExecOptions"}`, `, "subResource": "exec"`), "")},
		"of the core": {request: announced(requestOf("CREATE", "ConfigMap", `{"apiVersion": "v1", "kind": "ConfigMap"}`, ""), ""),
			warned: []string{"ConfigMap is none of Ashore's kinds"}},
		"not an object":  {request: requestOf("CREATE", vs, `[]`, ""), refused: []string{"want an object with apiVersion"}},
		"without a name": {request: requestOf("CREATE", vs, `{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {}, "spec": {}}`, ""), refused: []string{"metadata.name: the name is missing"}},
		"deprecated": {request: requestOf("CREATE", "DestinationRule", objectOf("v1", "DestinationRule", "",
			`{"host": "web.example.com", "trafficPolicy": {"outlierDetection": {"consecutiveErrors": 5}}}`), ""), warned: []string{"deprecated"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ask(t, newServer(t, Config{}), tc.request)
			if r.UID != "u-1" {
				t.Errorf("uid %q is not the request's", r.UID)
			}
			if r.Allowed != (tc.refused == nil) || r.Allowed != (r.Status == nil) {
				t.Fatalf("allowed %v with %+v", r.Allowed, r.Status)
			}
			if !r.Allowed && (r.Status.Code != http.StatusUnprocessableEntity || r.Status.Reason != "Invalid" ||
				len(r.Status.Details.Causes) == 0) {
				t.Errorf("status is %+v", r.Status)
			}
			for _, want := range tc.refused {
				if !strings.Contains(r.Status.Message, want) {
					t.Errorf("no %q in %q", want, r.Status.Message)
				}
			}
			warned := strings.Join(r.Warnings, "\n")
			for _, want := range tc.warned {
				if !strings.Contains(warned, want) {
					t.Errorf("no %q in the warnings %q", want, warned)
				}
			}
			if len(tc.warned) == 0 && warned != "" {
				t.Errorf("it warns of %q", warned)
			}
		})
	}
}

// A refusal has each error as a cause with its field, for programs.
func TestCauses(t *testing.T) {
	t.Parallel()
	r := ask(t, newServer(t, Config{}), requestOf("CREATE", "VirtualService",
		objectOf("v1", "VirtualService", "", `{"hostz": [], "http": 5}`), ""))
	var fields []string
	for _, c := range r.Status.Details.Causes {
		fields = append(fields, c.Field)
	}
	if diff := cmp.Diff([]string{"spec.hostz", "spec.http"}, fields); diff != "" {
		t.Error(diff)
	}
	if d := r.Status.Details; d.Name != "web" || d.Kind != "VirtualService" || d.Group != "networking.istio.io" {
		t.Errorf("details are %+v", d)
	}
}

// Every kind is checked in every version that Istio serves.
func TestAdmissionVersions(t *testing.T) {
	t.Parallel()
	s := newServer(t, Config{})
	for _, k := range config.Kinds() {
		for _, v := range k.Versions {
			object := fmt.Sprintf(`{"apiVersion": "%s/%s", "kind": %q, "metadata": {"name": "web"}, "spec": {"nonsense": 1}}`, k.Group, v, k.Kind)
			r := ask(t, s, fmt.Sprintf(`{"uid": "1", "kind": {"group": %q, "version": %q, "kind": %q}, "operation": "CREATE", "object": %s}`, k.Group, v, k.Kind, object))
			want := `spec.nonsense: unknown field "nonsense"`
			if !k.Supported {
				want = "is not supported yet"
			}
			if r.Allowed || !strings.Contains(r.Status.Message, want) {
				t.Errorf("%s/%s %s: %+v, want %s", k.Group, v, k.Kind, r, want)
			}
		}
	}
}

// What is no review that could be answered is told by the status, so that the API server does as
// its failurePolicy says.
func TestNoReview(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ body, want string }{
		"empty":        {"", "not an AdmissionReview in JSON"},
		"YAML":         {"kind: AdmissionReview", "not an AdmissionReview in JSON"},
		"two":          {reviewOf("{}") + reviewOf("{}"), "not an AdmissionReview in JSON"},
		"v1beta1":      {`{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}`, "list v1 in admissionReviewVersions"},
		"an object":    {objectOf("v1", "VirtualService", "", goodSpec), "text of configuration goes to /v1/validate"},
		"no request":   {`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}`, "needs a uid"},
		"no uid":       {reviewOf(`{"operation": "CREATE"}`), "needs a uid"},
		"a huge uid":   {reviewOf(`{"uid": "` + strings.Repeat("u", maxUID+1) + `"}`), "needs a uid"},
		"no operation": {reviewOf(`{"uid": "1"}`), "needs a uid"},
		// Nobody could tell whose the object is, and let it in unchecked.
		"no kind":           {reviewOf(`{"uid": "1", "operation": "CREATE", "object": ` + objectOf("v1", "VirtualService", "", badSpec) + `}`), "the kind of the object"},
		"no kind, delete":   {reviewOf(`{"uid": "1", "operation": "DELETE"}`), "the kind of the object"},
		"a group alone":     {reviewOf(requestOf("CREATE", "", objectOf("v1", "VirtualService", "", badSpec), "")), "the kind of the object"},
		"no object":         {reviewOf(requestOf("CREATE", "VirtualService", "null", "")), "request.object is missing"},
		"no object, others": {reviewOf(announced(requestOf("CREATE", "Deployment", "null", ""), "apps")), "request.object is missing"},
		"a wrong type":      {reviewOf(`{"uid": 5}`), "not an AdmissionReview in JSON"},
		"it is in part":     {`{"apiVersion": "admission.k8s.io/v1"`, "not an AdmissionReview in JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := post(newServer(t, Config{}), reviewPath, jsonType, tc.body)
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("status %d, %q; want 400 with %q", w.Code, w.Body, tc.want)
			}
		})
	}
}
