package agent

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// PackagedEnvoy is the Envoy of the package ashore-envoy.
	PackagedEnvoy = "/usr/lib/ashore/envoy"
	// PackagedState is the folder of the state folders of workloads that units run.
	PackagedState = "/var/lib/ashore-agent"
	// OperatorSettings is the operator's settings file for workloads that units run.
	OperatorSettings = "/etc/ashore/agent.yaml"
	// MainLink is a symbolic link in the folder of all state folders. It points to the state folder of
	// the workload that ashore-agent.service runs. Further workloads run as
	// ashore-agent@NAME.NAMESPACE.service.
	MainLink = "main"
	// UnitFolder is where systemd's units of Envoy find their files.
	UnitFolder = "/run/ashore-agent"
)

// Files in a state folder. It also has the files of the identity and, unless units run Envoy, the
// sockets below.
const (
	settingsFile  = "agent.yaml"          // the settings that the workload joined with; "run" reads it first
	bootstrapFile = "bootstrap.json"      // Envoy's first configuration, if Envoy is a child
	cacheFile     = "configuration.cache" // the configuration that Envoy acknowledged
	agentSocket   = "agent.sock"          // where the agent serves "status" and "leave"
	adminSocket   = "admin.sock"          // Envoy's admin interface
	lockFile      = "lock"                // locked by the process that uses the folder
)

// JoinedSettings is the path of the settings file that Join writes into a state folder.
func JoinedSettings(state string) string { return filepath.Join(state, settingsFile) }

// unitFolder is the folder of the files that Envoy's units read.
func (s *Settings) unitFolder() string { return cmp.Or(s.Envoy.folder, UnitFolder) }

// runtime is the folder of what the agent offers Envoy. With units Envoy's group may enter it.
func (s *Settings) runtime() string {
	if !s.Envoy.units {
		return s.State
	}
	return filepath.Join(s.unitFolder(), s.Envoy.workload)
}

// envoyFolder is the folder of the sockets that Envoy makes. With units Envoy's group may write to
// it.
func (s *Settings) envoyFolder() string {
	if !s.Envoy.units {
		return s.State
	}
	return filepath.Join(s.runtime(), "envoy")
}

// socketMode is the mode of sockets between the agent and Envoy. As a unit Envoy has another user
// of the same group.
func (s *Settings) socketMode() fs.FileMode {
	if !s.Envoy.units {
		return 0o600
	}
	return 0o660
}

// adminSocket is the path of the unix socket of Envoy's admin interface.
func (s *Settings) adminSocket() string { return filepath.Join(s.envoyFolder(), adminSocket) }

// xdsSocket is the path of the unix socket where the agent serves xDS and SDS to Envoy.
func (s *Settings) xdsSocket() string { return filepath.Join(s.runtime(), "xds.sock") }

// stateBase is the default folder of all state folders.
func stateBase(dev bool) (string, error) {
	base, err := filepath.Dir(PackagedState), error(nil)
	switch {
	case dev:
		base, err = os.UserCacheDir()
	case os.Geteuid() != 0 && !ownsPackagedState():
		base, err = os.UserHomeDir()
		base = filepath.Join(base, ".local", "state")
	}
	if err != nil {
		return "", fmt.Errorf("find a folder for the state (or set state): %w", err)
	}
	return filepath.Join(base, filepath.Base(PackagedState)), nil
}

// ownsPackagedState reports whether this process runs as the user of the units.
func ownsPackagedState() bool {
	info, err := os.Stat(PackagedState)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
