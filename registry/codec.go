package registry

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Codec returns the codec of services with their endpoints for a feed.Writer.
func Codec() feed.Codec[Instances] {
	return feed.Codec[Instances]{Encode: encode, Decode: decode}
}

func encode(in Instances) (json.RawMessage, error) { return json.Marshal(in) }

func decode(b json.RawMessage) (Instances, error) {
	var in Instances
	if err := json.Unmarshal(b, &in); err != nil {
		return Instances{}, err
	}
	return in, in.complete()
}

// complete returns an error if a required field is missing.
func (in Instances) complete() error {
	switch s := in.Service; {
	case s == nil:
		return errors.New("there is no service")
	case s.Host == "":
		return errors.New("the service has no host")
	case len(s.Ports) == 0:
		return fmt.Errorf("%s has no port", s.Host)
	}
	for i := range in.Endpoints.All() {
		if in.Endpoints.Items[i].Address == "" {
			return fmt.Errorf("endpoint %d of %s has no address", i, in.Service.Host)
		}
	}
	return nil
}
