// Package recordtest tests the contract of record.Store. Every store passes it.
package recordtest
