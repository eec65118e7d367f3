package server

import "github.com/ashore-mesh/ashore/webhook"

// webhookConnections is how many connections for validation there may be at once.
const webhookConnections = 512

// serveWebhook validates configuration over HTTPS if webhook.address is set.
func (s *Server) serveWebhook(id *identity) {
	l := s.listeners.webhook
	if l == nil {
		return
	}
	log := s.log.Named("webhook")
	w := webhook.New(webhook.Config{Listener: l, Certificate: id.manager.ServerCertificate,
		Connections: webhookConnections, Log: log, Registerer: s.registry})
	log.Info("validating", "address", l.Addr())
	s.run("webhook", w.Run)
}
