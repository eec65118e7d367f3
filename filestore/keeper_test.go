package filestore

import "testing"

// No kept content makes a start panic.
func FuzzRecord(f *testing.F) {
	r := record{body: []byte(entry("a", "10.0.0.1"))}
	b, err := r.marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("{}\n{}"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if r, err := parseRecord(b); err == nil {
			r.parse("x.json", "file:/x")
		}
	})
}
