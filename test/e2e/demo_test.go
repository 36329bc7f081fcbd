package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The demo's check can fail: with one event kept from the topic it names the row that differs and does not exit 0.
func TestDemoSeesAMissingEvent(t *testing.T) {
	worker, err := binary()
	require.NoError(t, err)
	demo := filepath.Join(t.TempDir(), "demo")
	out, err := exec.Command("go", "build", "-o", demo, "rollcall/cmd/demo").CombinedOutput()
	require.NoError(t, err, "%s", out)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err = exec.CommandContext(ctx, demo, "-worker", worker, "-sabotage", "-seconds", "5", "-rate", "5000", "-timeout", "90s").CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	require.Equal(t, 3, exit.ExitCode(), "%s", out)
	require.Contains(t, string(out), "DIFFERENT")
	require.Contains(t, string(out), "the table is not the truth")
}
