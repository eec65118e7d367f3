// Package feed merges items from several sources (files, stores, registries) and keeps the last
// known good state.
//
// A Source sends whole groups, never differences. A group is a unit that the source reads at once,
// such as a file or a Consul service. Sources retain nothing. The Merger does, by five rules:
//
//   - R1: an invalid item keeps its previous version, and an unreadable group keeps all its items.
//   - R2: a source that is down keeps its items.
//   - R3: a configuration object that no source supplies any more is removed after a delay, but not
//     while a fault may be the reason.
//   - R4: if a source loses all or most of its items at once, they stay.
//   - R5: groups are saved, and are used after a restart until their source delivers.
//
// A Writer saves the groups of a Merger in the background, and Load reads them at the next start.
// The package is generic: it knows neither configuration nor services.
//
// Limits: removals within the delay of R3 may be lost if the process is killed. An object that
// moves between two sources that are both down may be used from either.
package feed
