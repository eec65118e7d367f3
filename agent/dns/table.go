package dns

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	"google.golang.org/protobuf/encoding/protowire"
)

// Table holds the addresses of the mesh's names. It is immutable; nil is empty.
type Table struct {
	hosts map[string]addresses // keys are canonical: lower case, with a final dot
}

type addresses struct{ v4, v6 []netip.Addr }

var errTable = errors.New("not a message of the type istio.networking.nds.v1.NameTable")

// ReadTable reads an encoded NameTable. It ignores invalid host names and addresses.
// Source: Istio, pkg/dns/proto/nds.proto: NameTable{map<string, NameInfo> table = 1},
// NameInfo{repeated string ips = 1}.
func ReadTable(body []byte) (*Table, error) {
	t := &Table{hosts: map[string]addresses{}}
	err := eachField(body, func(number protowire.Number, entry []byte) error {
		if number != 1 {
			return nil
		}
		var host string
		var found addresses
		err := eachField(entry, func(number protowire.Number, value []byte) error {
			switch number {
			case 1:
				host = string(value)
			case 2:
				return found.read(value)
			}
			return nil
		})
		if _, ok := dns.IsDomainName(host); ok && host != "" {
			t.hosts[dns.CanonicalName(host)] = found
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// read adds the addresses of a NameInfo.
func (a *addresses) read(info []byte) error {
	return eachField(info, func(number protowire.Number, value []byte) error {
		ip, err := netip.ParseAddr(string(value))
		switch {
		case number != 1 || err != nil || ip.Zone() != "":
		case ip.Unmap().Is4():
			a.v4 = append(a.v4, ip.Unmap())
		default:
			a.v6 = append(a.v6, ip)
		}
		return nil
	})
}

// eachField calls f for each field of a message that is a string or a message.
func eachField(message []byte, f func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		number, typ, size := protowire.ConsumeField(message)
		if size < 0 {
			return errTable
		}
		field := message[:size]
		message = message[size:]
		if typ != protowire.BytesType {
			continue
		}
		_, _, tag := protowire.ConsumeTag(field)
		value, _ := protowire.ConsumeBytes(field[tag:])
		if err := f(number, value); err != nil {
			return err
		}
	}
	return nil
}

// Len is the number of names.
func (t *Table) Len() int {
	if t == nil {
		return 0
	}
	return len(t.hosts)
}

// lookup finds a canonical name, or the longest wildcard that matches it.
func (t *Table) lookup(name string) (addresses, bool) {
	if t.Len() == 0 {
		return addresses{}, false
	}
	found, ok := t.hosts[name]
	for rest := name; !ok; {
		_, after, more := strings.Cut(rest, ".")
		if !more || after == "" {
			return addresses{}, false
		}
		rest = after
		found, ok = t.hosts["*."+rest]
	}
	return found, ok
}
