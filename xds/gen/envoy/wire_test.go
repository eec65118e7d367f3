package envoy

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// The length of a message is written right whatever it is: one, two and three bytes of length.
func TestAppendMessage(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 16380, 16383, 16384, 70000} {
		text := strings.Repeat("x", n)
		b := AppendMessage(nil, 1, func(b []byte) []byte { return AppendText(b, 3, text) })
		want := resource.Encode(&structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue(text)}})
		if !bytes.Equal(want, b) {
			t.Errorf("text of %d bytes: %d bytes, the library makes %d", n, len(b), len(want))
		}
	}
}
