// Package filestore reads a folder of YAML and JSON as a source of configuration.
//
// Every file is one group, named by its path within the folder. A file that was renamed into place is
// read at once; one that is written in place after a short quiet time, because editors write in steps.
// The kernel's notifications are backed by a scan from time to time. Only files that changed are read.
//
// Nothing wrong ever removes something that was right: objects that a file cannot give in their present
// version stay in their last good one, and so does a file or folder that cannot be read. With a LastGood
// that holds over a restart, too. So do objects that a change took away while there is an error in their file, or in one
// that was changed with it: they may be what the error is about. Only a file that is deleted from a readable folder is gone, and only while
// another file stays there: a folder that holds no file of configuration any more removes nothing, and one that
// lacks files at the start only after a time. A folder of which nothing was ever read may be waited for.
//
// The package knows no kinds of configuration: config.Parse does, and config.KindInfo says which protect.
package filestore
