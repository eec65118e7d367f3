package adminapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/ashore-mesh/ashore/xds"
)

// shortType is the name of a type to operators: "cds".
func shortType(typeURL string) string {
	switch typeURL {
	case xds.ClusterType:
		return "cds"
	case xds.EndpointType:
		return "eds"
	case xds.ListenerType:
		return "lds"
	case xds.RouteType:
		return "rds"
	case xds.SecretType:
		return "sds"
	case xds.ExtensionConfigType:
		return "ecds"
	case xds.NameTableType:
		return "nds"
	case xds.ProxyConfigType:
		return "pcds"
	case xds.ProbeType:
		return "probe"
	default:
		return typeURL
	}
}

// bodyJSON is an Envoy resource in protobuf's JSON. A type that this program does not know is shown
// as its bytes. Of a secret only the name is shown.
func bodyJSON(typeURL, name string, body []byte) (json.RawMessage, error) {
	switch typeURL {
	case xds.SecretType:
		return json.Marshal(map[string]string{"name": name, "secret": "[redacted]"})
	case xds.NameTableType:
		return nameTableJSON(body)
	}
	mt, err := protoregistry.GlobalTypes.FindMessageByURL(typeURL)
	if err != nil {
		return bytesJSON(typeURL, body)
	}
	m := mt.New().Interface()
	if err := proto.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("decode a resource of %s: %w", typeURL, err)
	}
	b, err := protojson.Marshal(m)
	if err != nil { // a nested Any of an unknown type
		return bytesJSON(typeURL, body)
	}
	return b, nil
}

// bytesJSON is what protobuf's JSON of an Any looks like, with the bytes in base64.
func bytesJSON(typeURL string, body []byte) (json.RawMessage, error) {
	return json.Marshal(map[string]string{"@type": typeURL, "value": base64.StdEncoding.EncodeToString(body)})
}

// nameInfo is a NameInfo of Istio's name table, which has no Go type outside Istio.
// Source: istio.networking.nds.v1, nds.proto.
type nameInfo struct {
	IPs       []string `json:"ips,omitempty"`
	Registry  string   `json:"registry,omitempty"`
	ShortName string   `json:"shortname,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
	AltHosts  []string `json:"altHosts,omitempty"`
}

func nameTableJSON(body []byte) (json.RawMessage, error) {
	names := map[string]nameInfo{}
	err := eachField(body, func(num protowire.Number, entry []byte) error {
		if num != 1 {
			return nil
		}
		var host string
		var info nameInfo
		err := eachField(entry, func(num protowire.Number, v []byte) error {
			switch num {
			case 1:
				host = string(v)
			case 2:
				return info.decode(v)
			}
			return nil
		})
		names[host] = info
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("decode a name table: %w", err)
	}
	return json.Marshal(map[string]any{"table": names})
}

func (i *nameInfo) decode(b []byte) error {
	return eachField(b, func(num protowire.Number, v []byte) error {
		switch num {
		case 1:
			i.IPs = append(i.IPs, string(v))
		case 2:
			i.Registry = string(v)
		case 3:
			i.ShortName = string(v)
		case 4:
			i.Namespace = string(v)
		case 5:
			i.AltHosts = append(i.AltHosts, string(v))
		}
		return nil
	})
}

// eachField calls f for every field of b that holds bytes.
func eachField(b []byte, f func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := f(num, v); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
