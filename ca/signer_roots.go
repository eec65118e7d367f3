package ca

import (
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/internal/readfile"
)

// signerRoots joins the roots of an external signer with those of an authority. The zero value has
// none.
type signerRoots struct {
	file string // empty: there is no signer
	has  *Bundle

	own, joined *Bundle // joined is own with has
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
	if b := NewBundle(roots...); r.has == nil || r.has.ID != b.ID {
		r.has, r.own = b, nil
	}
	return nil
}

// contain reports whether the root with an ID is one of the signer. No rotation waits for it.
func (r *signerRoots) contain(id string) bool { return r.has != nil && r.has.has(id) }

// join returns the roots of an authority and of the signer. The result for one bundle keeps its
// pointer while the signer's roots do not change.
func (r *signerRoots) join(own *Bundle) *Bundle {
	if r.has == nil {
		return own
	}
	if r.own != own {
		r.own, r.joined = own, NewBundle(slices.Concat(own.Roots, r.has.Roots)...)
	}
	return r.joined
}
