package authz

import (
	"testing"

	mesh "istio.io/api/mesh/v1alpha1"
)

// Paths are rewritten as proxies do. Where that is not known they are unknown.
func TestNormalPath(t *testing.T) {
	t.Parallel()
	const (
		none   = mesh.MeshConfig_ProxyPathNormalization_NONE
		base   = mesh.MeshConfig_ProxyPathNormalization_DEFAULT
		merge  = mesh.MeshConfig_ProxyPathNormalization_MERGE_SLASHES
		decode = mesh.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES
	)
	for _, tc := range []struct {
		path string
		how  mesh.MeshConfig_ProxyPathNormalization_NormalizationType
		want string
	}{
		{"", base, ""},
		{"/a/../b", none, "/a/../b"},
		{"/b/.well-known/..c?d=/../e", base, "/b/.well-known/..c?d=/../e"},
		{"/a/../b", base, "/b"},
		{"/a/.", base, "/a/"},
		{"/a/..", base, "/"},
		{"/a//b", decode, "/a/b"},
		{"//a?b//c", merge, "/a?b//c"},
		{"//a", base, "//a"},
		{"/a//../b", merge, ""},
		{"/a/", merge, "/a/"},
		{"/a?b=%2f;", base, "/a?b=%2f;"},
		{`/a\b`, base, "/a/b"},
		{"/%61%2D%7e%5f%5A", base, "/a-~_Z"},
		{"/%20", base, ""},
		{"/x/..;/a", base, ""},
		{"/a%2fb%5Cc", decode, "/a/b/c"},
		{"/a%2fb", merge, ""},
		{"/{a}", merge, ""},
		{"/x/..;/%61", none, "/x/..;/%61"},
	} {
		if got := normalPath(tc.path, tc.how); got != tc.want {
			t.Errorf("%s with %s: got %s, want %s", tc.path, tc.how, got, tc.want)
		}
	}
}

// Hosts lose one trailing dot, as in Envoy.
func TestNormalHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"admin.test": "admin.test", "Admin_1.test.": "Admin_1.test", "admin.test.:80": "admin.test:80", "10.0.0.1:80": "10.0.0.1:80",
		"[::1].": "[::1]", "admin.test..": "admin.test.", ".": "",
	} {
		if got := normalHost(host); got != want {
			t.Errorf("%s: got %s, want %s", host, got, want)
		}
	}
}
