// Package filestore reads a folder of YAML and JSON files as a source of configuration.
//
// Source watches the folder and sends each file as one group. It reads a file again only when the
// file changed. It retains nothing: a file that cannot be read is sent as unreadable, and the
// feed.Merger keeps what it defined.
//
// Source promises that a change is sent within half a second, also while other files change all the
// time. It skips devices, pipes, and symlinks that leave the folder.
//
// List, Load, Parse and Together read files in the same way once, for command-line tools.
package filestore
