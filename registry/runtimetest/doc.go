// Package runtimetest is what every registry.Runtime promises, as a test.
package runtimetest
