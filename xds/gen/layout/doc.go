// Package layout decides which listeners a proxy has at which addresses, and which route configurations
// stand behind them. Listeners and routes are made from the same layout, so that each route
// configuration that a listener names exists.
package layout
