package main

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/webhook"
)

// webhookSettings are those of validation over HTTPS.
type webhookSettings struct {
	// Address serves it, with the certificate of xds.address. Default: off; 15017 is the port that
	// it has by custom.
	Address string `yaml:"address"`
	// MaxBytes is how large the body of a request may be. Default 1MiB.
	MaxBytes string `yaml:"maxBytes"`
	// Timeout is how long a body may take to come, and how long it may then wait for its turn.
	// Default 10s.
	Timeout time.Duration `yaml:"timeout"`
	// Rate is how many requests a second one address may make. Default 500.
	Rate int `yaml:"rate"`
	// Requests is how many there may be at once. Default 1024.
	Requests int `yaml:"requests"`
	// Connections is how many there may be at once. Default 512.
	Connections int `yaml:"connections"`
}

// defaultWebhook are the settings of an empty file.
func defaultWebhook() webhookSettings {
	return webhookSettings{MaxBytes: "1MiB", Timeout: 10 * time.Second, Rate: 500, Requests: 1024, Connections: 512}
}

// mostWebhookBytes is the highest webhook.maxBytes: API servers send no more, and the parser takes
// 200 times that.
const mostWebhookBytes = 16 << 20

// checkWebhook checks what has to do with validation over HTTPS; wrong is told what is.
func (s *settings) checkWebhook(wrong func(setting, format string, args ...any)) {
	w := s.Webhook
	if w.Address != "" && !s.secure() {
		wrong("webhook.address", "there is no authority that could certify it: set xds.address, or remove this")
	}
	if n, err := parseBytes(w.MaxBytes); err != nil || n == 0 || n > mostWebhookBytes {
		wrong("webhook.maxBytes", "%q is not a size from 1MiB to %dMiB", w.MaxBytes, mostWebhookBytes>>20)
	}
	if w.Timeout < time.Second || w.Timeout > time.Minute {
		wrong("webhook.timeout", "%s: want 1s to 1m, such as 10s", w.Timeout)
	}
	for _, n := range []struct {
		setting string
		value   int
	}{{"webhook.rate", w.Rate}, {"webhook.requests", w.Requests}, {"webhook.connections", w.Connections}} {
		if n.value < 1 || n.value > 1_000_000 {
			wrong(n.setting, "%d: want 1 to 1000000", n.value)
		}
	}
}

// webhook has configuration validated over HTTPS, where that is set.
func (p *program) webhook(s settings, d doors, id *identity, log hclog.Logger) error {
	if s.Webhook.Address == "" {
		return nil
	}
	l, err := listen(s.Webhook.Address, "webhook.address", "webhook-address")
	if err != nil {
		return err
	}
	p.closing(l)
	size, err := parseBytes(s.Webhook.MaxBytes)
	if err != nil {
		return fmt.Errorf("setting webhook.maxBytes: %w", err)
	}
	w, err := webhook.New(webhook.Config{Listener: l, Certificate: id.manager.ServerCertificate, MaxBytes: size,
		Timeout: s.Webhook.Timeout,
		Rate:    s.Webhook.Rate, Requests: s.Webhook.Requests, Connections: min(s.Webhook.Connections,
			openFiles()/4), Log: log, Registerer: d.registry})
	if err != nil {
		return err
	}
	log.Info("validating", "address", l.Addr())
	p.run("webhook", w.Run)
	return nil
}
