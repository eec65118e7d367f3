// Package recordtest is the contract of record.Store as a test that every store passes.
package recordtest
