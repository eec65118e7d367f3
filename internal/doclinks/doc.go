// Package doclinks tests that the links of the documentation lead somewhere, in the work tree and
// in the archive that is given to others. It holds nothing but tests.
package doclinks
