// Package pace bounds how often actors that one need not trust cause what costs others.
package pace
