// Package excerpt cuts texts of others short, so that they fit into a message or a log.
package excerpt
