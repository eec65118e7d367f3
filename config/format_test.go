package config

import "testing"

// A text that Envoy could not split into commands is refused.
func TestFormat(t *testing.T) {
	t.Parallel()
	for format, right := range map[string]bool{
		"":           true,
		"plain":      true,
		"100%%!":     true,
		"%PROTOCOL%": true,
		"[%START_TIME%] %START_TIME(%s)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH):10%": true,
		"%GRPC_STATUS%%GRPC_STATUS(CAMEL_STRING)%":                              true,
		"100%":            false,
		"% %":             false,
		"%protocol%":      false,
		"%PROTOCOL":       false,
		"%REQ(a":          false,
		"%REQ(a\nb)%":     false,
		"a\n%PROTOCOL%\n": true,
		"%REQ(a)":         false,
		"%REQ(a):%":       false,
		"%PROTOCOL%%":     false,
		"%REQ(a)% 5% %%":  false,
	} {
		if why := checkFormat(format); (why == "") != right {
			t.Errorf("checkFormat(%q) = %q, want it accepted: %v", format, why, right)
		}
	}
}
