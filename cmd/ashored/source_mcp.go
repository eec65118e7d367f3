package main

import (
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/mcp"
)

// mcpSource is another control plane, or another server that speaks MCP over xDS. mcp.Config
// describes the options.
type mcpSource struct {
	Address    string        `yaml:"address"`
	Plaintext  bool          `yaml:"plaintext"`
	CAFile     string        `yaml:"caFile"`
	CertFile   string        `yaml:"certFile"`
	KeyFile    string        `yaml:"keyFile"`
	ServerName string        `yaml:"serverName"`
	Kinds      []string      `yaml:"kinds"`
	NodeID     string        `yaml:"nodeID"`
	Namespace  string        `yaml:"namespace"`
	Revision   string        `yaml:"revision"`
	AnswerWait time.Duration `yaml:"answerWait"`
	MaxObjects int           `yaml:"maxObjects"`
	MaxMessage int           `yaml:"maxMessage"`
}

// config converts the settings.
func (m *mcpSource) config(name string, log hclog.Logger) mcp.Config {
	return mcp.Config{
		Name: name, Address: m.Address, Plaintext: m.Plaintext, CAFile: m.CAFile, CertFile: m.CertFile, KeyFile: m.KeyFile, ServerName: m.ServerName,
		Kinds: m.Kinds, NodeID: m.NodeID, Namespace: m.Namespace, Revision: m.Revision, AnswerWait: m.AnswerWait, MaxObjects: m.MaxObjects, MaxMessage: m.MaxMessage, Log: log,
	}
}

func (m *mcpSource) into() any { return m }

func (m *mcpSource) check(wrong func(option, format string, args ...any)) {
	if _, err := mcp.New(m.config("x", nil)); err != nil {
		option, text, _ := strings.Cut(err.Error(), ": ")
		wrong(option, "%s", text)
	}
}
