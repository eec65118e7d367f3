// Package excerpt shortens texts from outside for messages and logs.
package excerpt
