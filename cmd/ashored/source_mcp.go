package main

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/mcp"
)

// mcpSource is another control plane, or a server made for it, that speaks MCP. What each option means, and its default,
// mcp.Config says.
type mcpSource struct {
	Protocol    string        `yaml:"protocol"`
	Address     string        `yaml:"address"`
	Plaintext   bool          `yaml:"plaintext"`
	CAFile      string        `yaml:"caFile"`
	CertFile    string        `yaml:"certFile"`
	KeyFile     string        `yaml:"keyFile"`
	ServerName  string        `yaml:"serverName"`
	Peers       []string      `yaml:"peers"`
	Kinds       []string      `yaml:"kinds"`
	Collections []string      `yaml:"collections"`
	Full        bool          `yaml:"full"`
	NodeID      string        `yaml:"nodeID"`
	Namespace   string        `yaml:"namespace"`
	Revision    string        `yaml:"revision"`
	Emptied     string        `yaml:"emptied"`
	EmptyAfter  time.Duration `yaml:"emptyAfter"`
	AnswerWait  time.Duration `yaml:"answerWait"`
	MaxObjects  int           `yaml:"maxObjects"`
	MaxMessage  int           `yaml:"maxMessage"`
}

// config is what package mcp makes of it.
func (m *mcpSource) config(name string, log hclog.Logger) mcp.Config {
	return mcp.Config{
		Name: name, Protocol: m.Protocol, Address: m.Address, Plaintext: m.Plaintext, CAFile: m.CAFile, CertFile: m.CertFile, KeyFile: m.KeyFile,
		ServerName: m.ServerName, Peers: m.Peers, Kinds: m.Kinds, Collections: m.Collections, Full: m.Full, NodeID: m.NodeID, Namespace: m.Namespace,
		Revision: m.Revision, Emptied: m.Emptied, EmptyAfter: m.EmptyAfter, AnswerWait: m.AnswerWait, MaxObjects: m.MaxObjects, MaxMessage: m.MaxMessage, Log: log,
	}
}

func (m *mcpSource) into() any { return m }

func (m *mcpSource) check(wrong func(option, format string, args ...any)) {
	if _, err := mcp.New(m.config("x", nil)); err != nil {
		option, text, _ := strings.Cut(err.Error(), ": ")
		wrong(option, "%s", text)
	}
}

// encodeObjects writes objects as JSON that decodeObjects reads back.
func encodeObjects(objects []*config.Object) ([]byte, error) {
	text, err := config.Encode(objects)
	if err != nil {
		return nil, err
	}
	return json.Marshal(string(text))
}

// decodeObjects reads what encodeObjects wrote of a source, by name. Errors name the first object that is not valid any more;
// the others are returned besides.
func decodeObjects(source string) func([]byte) ([]*config.Object, error) {
	return func(b []byte) ([]*config.Object, error) {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return nil, err
		}
		result := config.ParseKept(source, []byte(text))
		for _, o := range result.Objects {
			o.Origin = config.Origin{Source: source}
		}
		for _, p := range result.Problems {
			if p.IsError() {
				return result.Objects, errors.New(p.String())
			}
		}
		return result.Objects, nil
	}
}
