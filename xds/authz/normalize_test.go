package authz

import (
	"testing"

	mesh "istio.io/api/mesh/v1alpha1"
)

// Paths are compared in the form that proxies give them.
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
		{"/a/../b?c=/../d", base, "/b?c=/../d"},
		{"/../a/./b/.", base, "/a/b/"},
		{"/a/..", base, "/"},
		{`/a\b`, base, "/a/b"},
		{"/%61%2F%2e%2E/%zz%4", base, "/a%2F../%zz%4"},
		{"/a//b", base, "/a//b"},
		{"/a///b", merge, "/a/b"},
		{"/a%2f%5Cb", merge, "/a%2f%5Cb"},
		{"/a%2f%5Cb", decode, "/a/b"},
		{"///", merge, "//"},
		{"/x/..;/admin/a", base, "/admin/a"},
		{"/x/..;y=1/.;/a", base, "/a"},
		{"/x/y/..;", base, "/x/"},
		{"/x/..;y%2fb/a", base, "/a"},
		{"/x/..;y%2fb/a", decode, "/b/a"},
		{`/x\..;/a`, base, "/x/..;/a"},
		{"/x/%2e%2e;/a", base, "/x/..;/a"},
		{"/x/..;/a", none, "/x/..;/a"},
		{"/x%2f..%2fa", base, "/x%2f..%2fa"},
		{"/x%2f..%5ca", decode, "/a"},
		{"/%252e%252e/a", decode, "/%252e%252e/a"},
		{"/a\"<>^`{|}b%7E", base, "/a%22%3C%3E%5E%60%7B%7C%7Db~"},
		{"/%2%61/%%61b/%%61g", base, "/%252a/%25ab/%ag"},
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
