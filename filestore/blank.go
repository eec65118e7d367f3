package filestore

import (
	"bytes"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// blank says that a file holds nothing that anybody wrote: no bytes, white space, or the zeros that stand
// where a crash or a full disk kept the content from the disk. A comment or "---" is something.
func blank(data []byte) bool {
	return len(bytes.Trim(bytes.TrimPrefix(data, []byte("\ufeff")), " \t\r\n\x00")) == 0
}

// blankResult is the reading of such a file: whatever was in it may be meant.
func blankResult(name, text string) config.Result {
	return config.Result{Unread: true, Problems: []config.Problem{{Severity: feed.Error, File: name, Text: text}}}
}

// What is said of one: in a folder whose content is at work, and of what somebody hands over to be judged, or written.
const (
	blankAtWork = "the file is empty: what it defined stays at work; write it again, or delete the file to remove it"
	blankGiven  = "it is empty: it defines nothing, and takes nothing away"
)
