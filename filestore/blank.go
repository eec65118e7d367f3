package filestore

import (
	"bytes"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// blank reports whether a file has no content: no bytes, white space, or the zeros that a crash or
// a full disk leaves. A comment or "---" is content.
func blank(data []byte) bool {
	return len(bytes.Trim(bytes.TrimPrefix(data, []byte("\ufeff")), " \t\r\n\x00")) == 0
}

// blankResult is the result of parsing such a file.
func blankResult(name, text string) config.Result {
	return config.Result{Unread: true, Problems: []config.Problem{{Severity: feed.Error, File: name, Text: text}}}
}

// What to say of an empty file: in a source, and where a user hands it to a command.
const (
	blankActive = "the file is empty: what it defined stays active; " +
		"write it again, or delete the file to remove its objects"
	blankGiven = "it is empty: it defines nothing and removes nothing"
)
