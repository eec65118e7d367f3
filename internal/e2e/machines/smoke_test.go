package machines

import (
	"path/filepath"
	"testing"
)

func TestLab(t *testing.T) {
	needRoot(t)
	at, _ := filepath.Abs(tree)
	l := newLab(t, at)
	var ms [4]*machine
	for i := range ms {
		ms[i] = l.newMachine([]string{"plane", "client", "backend", "edge"}[i], 10+i)
	}
	for _, m := range ms {
		m.booted()
	}
	t.Log("booted")
	for _, m := range ms {
		t.Log(m.name, m.run("systemctl --failed; ss -ltnp; ip -br a; ping -c1 -W1 10.77.0.10 2>&1; curl -6 -sS http://[fd77::11]/ 2>&1 | head -2 || true"))
	}
	ms[1].reboot()
	t.Log(ms[1].eventually(bootTime, "curl -sS http://10.77.0.11/ | head -3"))
	t.Log(l.get("http://10.77.0.11/"))
}
