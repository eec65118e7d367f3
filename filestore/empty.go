package filestore

import (
	"bytes"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// empty reports whether a file has only white space, a byte order mark or NUL bytes. A crash or a
// full disk can leave such a file. A comment or "---" is content.
func empty(data []byte) bool {
	return len(bytes.Trim(bytes.TrimPrefix(data, []byte("\ufeff")), " \t\r\n\x00")) == 0
}

// emptyResult is the result of parsing an empty file: it is unread, and has one error.
func emptyResult(name, text string) config.Result {
	return config.Result{Unread: true, Problems: []config.Problem{{Severity: feed.Error, File: name, Text: text}}}
}

// Messages about an empty file: in a source, and as an argument of a command.
const (
	emptyInSource = "the file is empty: its last good objects stay active; " +
		"restore the content, or delete the file to remove the objects"
	emptyArgument = "the file is empty: it defines nothing and removes nothing"
)
