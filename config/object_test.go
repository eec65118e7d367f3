package config

import "testing"

// ParseKey reads what String writes, and of anything else makes nothing that could be taken for a
// key.
func TestParseKey(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Key{
		"VirtualService shop/web":      {VirtualService, "shop", "web"},
		"AuthorizationPolicy a/b/c":    {AuthorizationPolicy, "a", "b/c"},
		"AuthorizationPolicy no-slash": {},
		"":                             {},
		"words of another kind":        {},
	} {
		if got := ParseKey(text); got != want {
			t.Errorf("%q is read as %v, want %v", text, got, want)
		}
		if want != (Key{}) && want.String() != text {
			t.Errorf("%v is written %q, want %q", want, want.String(), text)
		}
	}
}
