// Package host adds workloads of a machine to the mesh, where systemd units run the agent.
//
// Join checks the machine, joins as the agent's user, starts the unit and installs the interception
// rules. If a step fails, it undoes the earlier ones. Leave undoes all of them. Report shows the
// units.
//
// ashore-agent.service runs the first workload of a machine, which it finds by the symlink
// agent.MainLink. ashore-agent@NAME.NAMESPACE.service runs each further workload.
package host
