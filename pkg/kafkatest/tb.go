package kafkatest

import (
	"context"
	"os"
	"testing"
)

// RequireEnv is the variable that turns a missing Java or Maven from a skip into a failure when it is "1".
const RequireEnv = "ROLLCALL_REQUIRE_KAFKA"

// SkipOrRequire skips the test where real Kafka cannot be started, or fails it when [RequireEnv] is "1". It also skips under -short.
func SkipOrRequire(t testing.TB) {
	t.Helper()
	required := os.Getenv(RequireEnv) == "1" //nolint:forbidigo // a test helper's own switch, no setting of the worker
	if err := Available(); err != nil {
		if required {
			t.Fatalf("%s=1: %v", RequireEnv, err)
		}
		t.Skipf("skipped: %v (java 17 or newer and mvn are needed on the PATH)", err)
	}
	if testing.Short() && !required {
		t.Skip("skipped: -short")
	}
}

// Start is [StartCluster] for tests: it calls [SkipOrRequire], fails the test when the cluster does not start, ends the cluster with the test
// and writes the end of every broker's log to the test log if the test has failed.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	SkipOrRequire(t)
	c, err := StartCluster(context.Background(), o)
	if err != nil {
		t.Fatalf("start kafka: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Logs(8000))
		}
		if err := c.Close(); err != nil {
			t.Errorf("close kafka: %v", err)
		}
	})
	return c
}

// StartFakeT is [StartFake] for tests: it fails the test when the cluster does not start and closes it with the test.
func StartFakeT(t testing.TB, o FakeOptions) *Fake {
	t.Helper()
	f, err := StartFake(o)
	if err != nil {
		t.Fatalf("start kfake: %v", err)
	}
	t.Cleanup(f.Close)
	return f
}
