// Package endpoint makes the load assignments: the endpoints of clusters that get them by EDS. They are
// what changes most often and there are most of, so they are encoded by hand.
package endpoint
