// Package host makes a machine whose systemd units run the agent a member of the mesh.
//
// Join checks the machine, joins with the rights of the agent's user, starts the unit and installs
// the interception rules; if a step fails, they are undone. Leave undoes all of them. Report shows
// the units.
//
// The first workload of a machine has ashore-agent.service, which finds it by the link
// agent.MainLink. Further ones have ashore-agent@NAME.NAMESPACE.service.
package host
