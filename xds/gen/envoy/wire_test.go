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
	for _, n := range []int{0, 1, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 16380, 16383, 16384, 70000} {
		text := strings.Repeat("x", n)
		b := AppendTextMember([]byte{}, "key", text)
		want := map[string]*structpb.Value{}
		if n > 0 {
			want["key"] = structpb.NewStringValue(text)
		}
		if got := resource.Encode(&structpb.Struct{Fields: want}); !bytes.Equal(got, b) {
			t.Errorf("text of %d bytes: %d bytes, the library makes %d", n, len(b), len(got))
		}
	}
	b := AppendNumberMember(nil, "key", 8080)
	if want := resource.Encode(&structpb.Struct{Fields: map[string]*structpb.Value{"key": structpb.NewNumberValue(8080)}}); !bytes.Equal(b, want) {
		t.Errorf("number: got %x, the library makes %x", b, want)
	}
}
