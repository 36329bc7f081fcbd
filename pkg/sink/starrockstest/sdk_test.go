package starrockstest_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/sink/starrockstest"
)

// TestOfficialSDK loads with StarRocks' own Java client: one stand-in that two independent clients understand is less
// likely to be wrong in the same way as ours. Through a follower too: the FE list has both.
func TestOfficialSDK(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: %s is not on the PATH", tool)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	dir := t.TempDir()
	jars := filepath.Join(dir, "classpath")
	out, err := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", "testdata/sdk/pom.xml", "dependency:build-classpath", "-Dmdep.outputFile="+jars).CombinedOutput()
	if err != nil {
		t.Skipf("skipped: Maven did not bring the client: %v\n%s", err, out)
	}
	path, err := os.ReadFile(jars)
	require.NoError(t, err)
	classpath := strings.TrimSpace(string(path)) + string(os.PathListSeparator) + dir
	out, err = exec.CommandContext(ctx, "javac", "-d", dir, "-cp", classpath, "testdata/sdk/Load.java").CombinedOutput()
	require.NoError(t, err, string(out))

	for _, tc := range []struct {
		commit, version string
		transaction     bool
		compression     string
	}{
		{"auto", "3.2.0", true, ""}, {"manual", "3.2.0", true, ""}, {"auto", "2.3.0", false, ""}, {"auto", "2.3.0", false, "lz4_frame"},
	} {
		t.Run(strings.TrimSpace(tc.commit+" "+tc.version+" "+tc.compression), func(t *testing.T) {
			c := seeded(t, starrockstest.Config{FEs: 2, Users: []starrockstest.User{{Name: "root", Password: "secret"}}})
			out, err := exec.CommandContext(ctx, "java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=debug", "-cp", classpath, "Load",
				strings.Join(c.FEURLs(), ","), tc.commit, tc.version, columns, tc.compression).CombinedOutput()
			require.NoError(t, err, string(out))
			loads, rows := c.Committed()
			require.Equal(t, 20, rows)
			for _, l := range loads {
				require.Equal(t, tc.transaction, l.Transaction)
				require.Equal(t, tc.compression, l.Compression)
				require.Equal(t, starrockstest.StateVisible, c.LabelState("dau", l.Label))
			}
			_, got, err := c.Query("SELECT platform, pv, bitmap_to_string(uv) FROM dau.daily ORDER BY 1")
			require.NoError(t, err)
			require.Equal(t, [][]any{{"p0", int64(18), "5"}, {"p1", int64(19), "5"}}, got)
		})
	}
}

// TestMariaDBClient queries with the command line client people have.
func TestMariaDBClient(t *testing.T) {
	client, err := exec.LookPath("mariadb")
	if err != nil {
		t.Skip("skipped: mariadb is not on the PATH")
	}
	c := filled(t, starrockstest.Config{Users: []starrockstest.User{{Name: "root", Password: "secret"}}})
	host, port, err := net.SplitHostPort(c.MySQLAddr(1))
	require.NoError(t, err)
	sql := func(text string) string {
		cmd := exec.CommandContext(t.Context(), client, "--no-defaults", "--protocol=tcp", "-h", host, "-P", port, "-u", "root", "-psecret", "-B", "-D", "dau", "-e", text)
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	require.Equal(t, "dt\tuv\tpv\n2024-03-01\t5\t12\n", sql("SELECT dt, bitmap_union_count(uv) AS uv, SUM(pv) AS pv FROM daily WHERE dt = '2024-03-01' GROUP BY dt"))
	require.Contains(t, sql("SHOW TABLES; DESC daily;"), "BITMAP_UNION")
	require.Equal(t, fmt.Sprintln("ERROR 5502 (42S02) at line 1: Unknown table 'dau.nix'"), after(sql("SELECT * FROM nix"), "--------------\nSELECT * FROM nix\n--------------\n\n"))
}
