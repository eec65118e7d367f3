package server

import (
	"time"

	"github.com/ashore-mesh/ashore/webhook"
)

// The limits of validation over HTTPS.
const (
	// webhookTimeout limits how long a body may take, and how long it then waits for its turn.
	webhookTimeout = 10 * time.Second
	// webhookRate limits the requests of one address in a second.
	webhookRate        = 500
	webhookRequests    = 256 // at once
	webhookConnections = 512 // at once
)

// serveWebhook validates configuration over HTTPS if webhook.address is set.
func (s *Server) serveWebhook(id *identity) error {
	l := s.listeners.webhook
	if l == nil {
		return nil
	}
	log := s.log.Named("webhook")
	w, err := webhook.New(webhook.Config{Listener: l, Certificate: id.manager.ServerCertificate,
		Timeout: webhookTimeout, Rate: webhookRate, Requests: webhookRequests,
		Connections: min(webhookConnections, openFiles()/4), Log: log, Registerer: s.registry})
	if err != nil {
		return err
	}
	log.Info("validating", "address", l.Addr())
	s.run("webhook", w.Run)
	return nil
}
