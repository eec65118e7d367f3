// Package traffic tests that stock Envoys route real requests as configured, also during changes,
// failures and outages.
package traffic
