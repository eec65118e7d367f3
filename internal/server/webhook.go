package server

import "github.com/ashore-mesh/ashore/webhook"

// webhookConnections is how many connections for validation there may be at once.
const webhookConnections = 512

// serveWebhook validates configuration over HTTPS if webhook.address is set.
func (s *Server) serveWebhook(id *identity) error {
	l := s.listeners.webhook
	if l == nil {
		return nil
	}
	log := s.log.Named("webhook")
	w, err := webhook.New(webhook.Config{Listener: l, Certificate: id.manager.ServerCertificate,
		Connections: min(webhookConnections, openFiles()/4), Log: log, Registerer: s.registry})
	if err != nil {
		return err
	}
	log.Info("validating", "address", l.Addr())
	s.run("webhook", w.Run)
	return nil
}
