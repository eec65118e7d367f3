package push

import (
	"slices"
	"time"

	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
)

// keyState is how far the first build is with keys.
type keyState uint8

const (
	// keysUnasked: nobody was asked, for configuration was not complete.
	keysUnasked keyState = iota
	// keysAsked: the source was told what is wanted.
	keysAsked
	// keysThere: it has answered, once at least.
	keysThere
)

// takeTrust takes in whom workloads believe from now on.
func (a *Assembler) takeTrust(t *Trust, now time.Time) {
	if t != a.inputs.Trust {
		a.inputs.Trust = t
		a.changed(time.Time{}, now)
	}
}

// takeKeys takes in the keys of the issuers of tokens.
func (a *Assembler) takeKeys(k *KeySets, now time.Time) {
	if a.keyed == keysAsked {
		a.keyed = keysThere
	}
	if k != a.inputs.Keys {
		a.inputs.Keys = k
		a.changed(time.Time{}, now)
	}
}

// firstKeys says whether the first build need not wait for keys: without them every token would be refused, also those
// that were good before the start.
func (a *Assembler) firstKeys() bool {
	if a.cfg.Keys == nil || a.keyed == keysThere {
		return true
	}
	if a.keyed == keysUnasked {
		a.keyed = keysAsked
		a.cfg.Keys.Want(a.keyURLs())
	}
	return false
}

// wantKeys asks for the keys of RequestAuthentications that changed. The first build asks by itself.
func (a *Assembler) wantKeys() {
	if a.cfg.Keys == nil || !a.rekey || a.keyed == keysUnasked {
		return
	}
	a.rekey = false
	a.cfg.Keys.Want(a.keyURLs())
}

// keyURLs lists where RequestAuthentications want keys fetched, sorted, each once.
func (a *Assembler) keyURLs() []string {
	var out []string
	for k, o := range a.inputs.Objects.From(config.Key{Kind: config.RequestAuthentication}) {
		if k.Kind != config.RequestAuthentication {
			break
		}
		for _, r := range o.Spec.(*security.RequestAuthentication).JwtRules {
			if u := KeyURL(r); u != "" {
				out = append(out, u)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
