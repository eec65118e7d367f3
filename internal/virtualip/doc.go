// Package virtualip chooses virtual addresses for services: by a hash of their name, and beside that where another service has the
// address. Who keeps them keeps what was chosen, as the choice depends on who came before.
package virtualip
