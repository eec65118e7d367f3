package main

import (
	"strings"
	"testing"
	"time"
)

// Settings of validation that make no sense are named.
func TestWebhookSettings(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*settings)
		want   string
	}{
		"default": {func(*settings) {}, ""},
		"on":      {func(s *settings) { s.Webhook.Address = ":15017" }, ""},
		"no authority": {func(s *settings) {
			s.XDS.Address, s.XDS.PlaintextAddress, s.Webhook.Address = "", "127.0.0.1:15010", ":15017"
		}, "webhook.address: there is no authority"},
		"no address":       {func(s *settings) { s.Webhook.Address = "15017" }, `webhook.address: "15017" is not an address`},
		"of another":       {func(s *settings) { s.Webhook.Address = ":15012" }, "webhook.address: :15012 is xds.address too"},
		"no size":          {func(s *settings) { s.Webhook.MaxBytes = "" }, "webhook.maxBytes"},
		"too large":        {func(s *settings) { s.Webhook.MaxBytes = "17MiB" }, `webhook.maxBytes: "17MiB" is not a size from 1MiB to 16MiB`},
		"no time":          {func(s *settings) { s.Webhook.Timeout = 0 }, "webhook.timeout: 0s: want 1s to 1m"},
		"too long":         {func(s *settings) { s.Webhook.Timeout = time.Hour }, "webhook.timeout: 1h0m0s: want 1s to 1m"},
		"no rate":          {func(s *settings) { s.Webhook.Rate = 0 }, "webhook.rate: 0: want 1"},
		"no requests":      {func(s *settings) { s.Webhook.Requests = -1 }, "webhook.requests: -1: want 1"},
		"many connections": {func(s *settings) { s.Webhook.Connections = 1e9 }, "webhook.connections: 1000000000: want 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := defaults()
			tc.change(&s)
			err := s.check("a.yaml")
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
