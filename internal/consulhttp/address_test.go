package consulhttp

import "testing"

// What goes to another machine goes over TLS, or somebody is told.
func TestExposed(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		DefaultAddress: false, "http://localhost": false, "http://[::1]:8500": false, "http://127.8.0.1:1": false, "unix:///run/consul.sock": false,
		"https://10.0.0.1": false, "https://consul": false, "nonsense": false,
		"http://10.0.0.1": true, "http://consul:8500": true, "http://localhost.example": true, "http://[2001:db8::1]": true,
	} {
		if got := Exposed(address); got != want {
			t.Errorf("%s: got %v", address, got)
		}
	}
}
