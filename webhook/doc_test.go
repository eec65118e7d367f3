package webhook

import (
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/config"
)

// webhookConfiguration is what is looked at in Kubernetes' ValidatingWebhookConfiguration.
type webhookConfiguration struct {
	Kind     string
	Webhooks []struct {
		AdmissionReviewVersions []string `yaml:"admissionReviewVersions"`
		SideEffects             string   `yaml:"sideEffects"`
		ClientConfig            struct {
			URL string `yaml:"url"`
		} `yaml:"clientConfig"`
		Rules []struct {
			Operations  []string
			APIGroups   []string `yaml:"apiGroups"`
			APIVersions []string `yaml:"apiVersions"`
			Resources   []string
		}
	}
}

// The example in docs/webhook.md has every kind that there is checked, in every version, where it
// is answered.
func TestDocumentedConfiguration(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/webhook.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin = "```yaml\napiVersion: admissionregistration.k8s.io/v1\n"
	_, rest, found := strings.Cut(string(text), begin)
	block, _, ends := strings.Cut(rest, "```")
	var c webhookConfiguration
	if err := yaml.Unmarshal([]byte(block), &c); err != nil || !found || !ends ||
		c.Kind != "ValidatingWebhookConfiguration" || len(c.Webhooks) != 1 {
		t.Fatalf("there is no such example: %+v, %v", c, err)
	}
	h := c.Webhooks[0]
	if !slices.Contains(h.AdmissionReviewVersions, "v1") || h.SideEffects != "None" ||
		!strings.HasSuffix(h.ClientConfig.URL, ":15017"+reviewPath) {
		t.Errorf("it is %+v", h)
	}
	got, want := map[string][]string{}, map[string][]string{}
	for _, r := range h.Rules {
		if diff := gocmp.Diff([]string{opCreate, opUpdate}, r.Operations); diff != "" ||
			!slices.Equal(r.APIVersions, []string{"*"}) {
			t.Errorf("rule %+v", r)
		}
		for _, group := range r.APIGroups {
			got[group] = append(got[group], r.Resources...)
		}
	}
	for _, k := range config.Kinds() {
		want[k.Group] = append(want[k.Group], k.Plural)
	}
	for _, resources := range []map[string][]string{got, want} {
		for _, names := range resources {
			slices.Sort(names)
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("kinds in the example (-there are +it has):\n%s", diff)
	}
}
