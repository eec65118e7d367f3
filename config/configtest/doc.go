// Package configtest is the contract of config.Store as a test that every store passes.
package configtest
