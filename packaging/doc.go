// Package packaging describes the deb and rpm packages, which "make package" builds: what is in them, their scripts, and
// the settings that they install. It has no code, only tests of the packages in dist and of the units in systemd.
package packaging
