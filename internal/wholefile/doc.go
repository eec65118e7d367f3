// Package wholefile replaces files atomically, with access only for their owner. It writes and
// syncs a temporary file in the same folder, and renames it. Readers see the old content or the new
// one, also after a crash or a loss of power. SyncFolder makes the rename durable.
//
// A killed process leaves hidden temporary files, which Clean removes.
package wholefile
