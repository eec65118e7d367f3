// Package build returns the version of a program of Ashore.
package build
