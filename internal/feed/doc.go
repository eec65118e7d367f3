// Package feed is the contract between sources (files, stores, registries) and the assembler, and
// holds the rules that keep the last known good state.
//
// A Source sends whole groups, never differences: a group is what the source reads as one, such as
// a file or a Consul service. No source retains anything. The Merger does, by five rules:
//
//   - R1: an invalid item keeps its former version, and an unreadable group keeps all its items.
//   - R2: a source that is down keeps its items.
//   - R3: a configuration object that no source supplies any more is removed after a delay, and
//     not while something is wrong that may be the reason.
//   - R4: when a source loses all or most of its items at once, they stay.
//   - R5: groups are saved, and are used after a restart until their source delivers.
//
// A Writer saves the groups of a Merger in the background, and Load reads them at the next start.
// The package knows neither configuration nor services.
//
// Not promised: what happens when the process is killed within the delay of R3; an object that moves
// between two sources that are both down; an age of each group within one source.
package feed
