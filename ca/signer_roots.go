package ca

import (
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/internal/readfile"
)

// signerRoots joins the roots of an external signer with those of an authority. The zero value has
// none.
type signerRoots struct {
	file  string  // empty: there is no signer
	roots *Bundle // as they were read last; nil: never

	authority, joined *Bundle // joined has the roots of authority and of the signer
}

// read reads the file. Errors: it cannot be used; the roots that were read before stay.
func (r *signerRoots) read() error {
	if r.file == "" {
		return nil
	}
	text, _, err := readfile.Read(r.file, maxPlugged)
	if err != nil {
		return fmt.Errorf("the roots of the signer (setting ca.signer.roots): %w", err)
	}
	roots, err := DecodeCertificates(text)
	for _, c := range roots {
		if err == nil {
			err = checkAuthority(c)
		}
	}
	if err != nil {
		return fmt.Errorf("the roots of the signer (setting ca.signer.roots): %s: %w", r.file, err)
	}
	if b := NewBundle(roots...); r.roots == nil || r.roots.ID != b.ID {
		r.roots, r.authority = b, nil
	}
	return nil
}

// contain reports whether the root with an ID is one of the signer. No rotation waits for it.
func (r *signerRoots) contain(id string) bool { return r.roots != nil && r.roots.has(id) }

// join returns the roots of an authority and of the signer. The result for one bundle keeps its
// pointer while the signer's roots do not change.
func (r *signerRoots) join(authority *Bundle) *Bundle {
	if r.roots == nil {
		return authority
	}
	if r.authority != authority {
		r.authority, r.joined = authority, NewBundle(slices.Concat(authority.Roots, r.roots.Roots)...)
	}
	return r.joined
}
