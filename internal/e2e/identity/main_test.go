package identity

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// together is how many tests run at a time, unless -parallel says it: most of what they do is to
// wait for certificates to end.
const together = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", together); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	harness.Main(m)
}
