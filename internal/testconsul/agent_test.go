package testconsul

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An agent answers at the same address when it is started again.
func TestAgent(t *testing.T) {
	t.Parallel()
	a := Start(t, nil)
	ask := func() error {
		resp, err := http.Get("http://" + a.Address + "/v1/status/leader")
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	if err := ask(); err != nil {
		t.Error(err)
	}
	a.Kill()
	if ask() == nil {
		t.Error("it answers after its end")
	}
	a.Start()
	if err := ask(); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}
