// Package traffic tests what users get: stock Envoys that pass real requests as the configuration
// says, through changes, failures and outages. The tests are in its test files.
package traffic
