// Package build says which build of Ashore a program is.
package build
