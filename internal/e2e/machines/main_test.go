package machines

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree is the Debian tree that tools/machine.sh makes.
const tree = "../../../.tools/machine"

// needRoot skips a test that makes machines.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make machines")
	}
}
