// Package readfile reads whole files that people put in place, and never more of them than the
// reader expects.
package readfile
