// Package wholefile puts files in place whole or not at all, for their owner alone: beside their
// place first, on the disk, and then by a rename. Readers see the old content or the new one, also
// after a kill or a loss of power. That the new one is there after a loss of power takes SyncFolder
// too.
//
// What a killed process leaves are hidden files, which Clean removes.
package wholefile
