package push

import (
	"strings"
	"testing"
)

// "~" before a namespace leaves hosts out, whatever imports them.
func TestImportsCover(t *testing.T) {
	t.Parallel()
	im := ParseImports([]string{"*/*", "~b/*.example.com", "~/secret.a.com", "~./own.a.com"}, "shop")
	for host, want := range map[string]bool{
		"a/x.example.com": true, "b/x.example.com": false, "b/*.x.example.com": false, "b/*.com": true, "b/other.com": true,
		"a/secret.a.com": false, "a/*.a.com": true, "shop/own.a.com": false, "a/own.a.com": true,
	} {
		namespace, name, _ := strings.Cut(host, "/")
		if got := im.Cover(namespace, name); got != want {
			t.Errorf("%s: got %t, want %t", host, got, want)
		}
	}
	if none := ParseImports([]string{"~/*", "*/*"}, "shop"); none.Cover("a", "x.com") {
		t.Error("~/* leaves a host")
	}
}
