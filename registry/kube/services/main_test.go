package services

import (
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // one of them limits its rate by a clock that all tests share
	goleak.VerifyTestMain(m)
}
