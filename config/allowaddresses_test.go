package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestAllowAddresses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		value, want, problem string
	}{
		"none":            {`""`, "[]", ""},
		"an address":      {`192.0.2.7`, "[192.0.2.7/32]", ""},
		"several":         {`"192.0.2.7, 10.1.0.0/16,2001:db8::/32"`, "[192.0.2.7/32 10.1.0.0/16 2001:db8::/32]", ""},
		"mapped to IPv6":  {`"::ffff:192.0.2.7"`, "[192.0.2.7/32]", ""},
		"no address":      {`10.0.0.0/8, web.shop`, "[]", `"web.shop" is not an address or a range`},
		"an empty part":   {`"10.0.0.0/8,"`, "[]", `"" is not an address or a range`},
		"a zone":          {`"fe80::1%eth0"`, "[]", `is not an address or a range`},
		"a mapped range":  {`"::ffff:10.0.0.0/104"`, "[]", `is not an address or a range`},
		"host bits":       {`10.1.2.3/16`, "[]", `"10.1.2.3/16" has host bits set: write 10.1.0.0/16`},
		"too long prefix": {`10.0.0.0/33`, "[]", `is not an address or a range`},
	} {
		text := "apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata:\n  name: web\n  namespace: shop\n  annotations:\n    ashore.io/allow-addresses: " + tc.value + "\nspec: {template: {}}\n"
		r := Parse("web.yaml", []byte(text))
		if got := strings.Join(texts(r), "\n"); tc.problem == "" && (len(r.Objects) != 1 || len(r.Problems) > 0) ||
			tc.problem != "" && (!strings.Contains(got, tc.problem) ||
				!strings.Contains(got, "metadata.annotations[ashore.io/allow-addresses]")) {
			t.Errorf("%s: got %s, want %q", name, got, tc.problem)
		}
		group := &Object{Annotations: map[string]string{AllowAddressesAnnotation: strings.Trim(tc.value, `"`)}}
		if got := fmt.Sprint(AllowedAddresses(group)); got != tc.want {
			t.Errorf("%s: allowed are %s, want %s", name, got, tc.want)
		}
	}
}
