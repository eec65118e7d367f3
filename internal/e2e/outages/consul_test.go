package outages

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// pretend makes another server answer at Consul's address until the returned function is called.
// Consul has to be down.
func (w *world) pretend(answer http.HandlerFunc) (stop func()) {
	w.t.Helper()
	l, err := net.Listen("tcp", w.agent.Secure)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &http.Server{Handler: answer, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.ServeTLS(l, w.agent.CertFile, w.agent.KeyFile); !errors.Is(err, http.ErrServerClosed) {
			w.t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() {
		_ = s.Close() // it is no matter how connections end
		<-done
	})
	w.t.Cleanup(stop)
	return stop
}

// failing answers as a server that has lost its leader.
func failing(rw http.ResponseWriter, _ *http.Request) {
	http.Error(rw, "rpc error making call: No cluster leader", http.StatusInternalServerError)
}

// garbage answers what is none of Consul's answers, as some proxy in between might.
func garbage(rw http.ResponseWriter, _ *http.Request) {
	rw.Header().Set("X-Consul-Index", "7")
	rw.Header().Set("Content-Type", "application/json")
	_, _ = rw.Write([]byte(`{"web": [{"Node": "half an ans`)) // it fails only when the client is gone
}
