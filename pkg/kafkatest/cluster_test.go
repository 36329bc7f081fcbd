package kafkatest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// One cluster serves all cases: every one of them leaves it whole.
func TestCluster(t *testing.T) {
	c := Start(t, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.Len(t, c.Addrs(), 3)
	const topic = "events"
	require.NoError(t, c.CreateTopic(ctx, topic, 6, map[string]string{"min.insync.replicas": "2"}))
	require.NoError(t, c.CreateTopic(ctx, topic, 6, nil), "a second creation is no error")

	t.Run("answers", func(t *testing.T) { produceAndRead(ctx, t, c, topic) })
	t.Run("kill and restart", func(t *testing.T) {
		require.NoError(t, c.Kill(1))
		require.Equal(t, Dead, c.State(1))
		require.NoError(t, c.Kill(1), "killing the dead")
		require.Error(t, c.Stop(1))
		waitNoLeader(ctx, t, c, topic, 1)
		produceAndRead(ctx, t, c, topic)
		require.NoError(t, c.Restart(1))
		require.NoError(t, c.WaitReady(ctx))
		require.NoError(t, c.WaitInSync(ctx))
		require.NoError(t, c.ElectPreferred(ctx))
		waitLeaderAgain(ctx, t, c, topic, 1)
	})
	t.Run("stop and continue", func(t *testing.T) {
		require.NoError(t, c.Stop(2))
		require.Equal(t, Stopped, c.State(2))
		conn, err := net.DialTimeout("tcp", c.Addrs()[2], 5*time.Second)
		require.NoError(t, err, "the kernel accepts for a frozen broker")
		require.NoError(t, conn.Close())
		waitNoLeader(ctx, t, c, topic, 2)
		require.NoError(t, c.Continue(2))
		require.NoError(t, c.WaitReady(ctx))
		require.NoError(t, c.WaitInSync(ctx))
	})
	t.Run("move a leader", func(t *testing.T) {
		for to := range 3 {
			require.NoError(t, c.MoveLeader(ctx, topic, 0, to))
			leaders, err := c.Leaders(ctx, topic)
			require.NoError(t, err)
			require.EqualValues(t, to, leaders[0])
		}
	})
	t.Run("replace", func(t *testing.T) {
		old := c.Addrs()[0]
		require.NoError(t, c.Replace(0))
		require.NotEqual(t, old, c.Addrs()[0])
		require.NoError(t, c.WaitReady(ctx))
		_, err := net.DialTimeout("tcp", old, time.Second)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.NoError(t, c.WaitInSync(ctx))
		produceAndRead(ctx, t, c, topic)
	})
	t.Run("shut down", func(t *testing.T) {
		require.NoError(t, c.Shutdown(ctx, 1))
		require.Equal(t, Dead, c.State(1))
		leaders, err := c.Leaders(ctx, topic)
		require.NoError(t, err)
		for p, l := range leaders {
			require.NotEqualValues(t, 1, l, "leader of partition %d", p)
		}
		require.NoError(t, c.Restart(1))
		require.NoError(t, c.WaitReady(ctx))
	})
	require.Contains(t, c.Logs(1000), "broker 2")
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.Error(t, c.Restart(0))
	_, err := c.Leaders(ctx, topic)
	require.ErrorIs(t, err, errClosed)
}

func produceAndRead(ctx context.Context, t *testing.T, c *Cluster, topic string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.ConsumeTopics(topic), kgo.DefaultProduceTopic(topic),
		kgo.DialTimeout(time.Second), kgo.RequestTimeoutOverhead(3*time.Second), kgo.DisableClientMetrics())
	require.NoError(t, err)
	defer cl.Close()
	want := fmt.Sprint(time.Now().UnixNano())
	require.NoError(t, cl.ProduceSync(ctx, kgo.StringRecord(want)).FirstErr())
	for found := false; !found; {
		fs := cl.PollFetches(ctx)
		require.NoError(t, ctx.Err())
		fs.EachRecord(func(r *kgo.Record) { found = found || string(r.Value) == want })
	}
}

func waitNoLeader(ctx context.Context, t *testing.T, c *Cluster, topic string, node int32) {
	t.Helper()
	require.NoError(t, poll(ctx, func() error {
		leaders, err := c.Leaders(ctx, topic)
		if err != nil {
			return err
		}
		for p, l := range leaders {
			if l == node || l < 0 {
				return fmt.Errorf("partition %d: leader %d", p, l)
			}
		}
		return nil
	}))
}

func waitLeaderAgain(ctx context.Context, t *testing.T, c *Cluster, topic string, node int32) {
	t.Helper()
	require.NoError(t, poll(ctx, func() error {
		leaders, err := c.Leaders(ctx, topic)
		if err != nil {
			return err
		}
		for _, l := range leaders {
			if l == node {
				return nil
			}
		}
		return fmt.Errorf("broker %d leads nothing", node)
	}))
}

// A start that cannot work says why at once and leaves nothing running.
func TestClusterStartFails(t *testing.T) {
	SkipOrRequire(t)
	begin := time.Now()
	_, err := StartCluster(t.Context(), Options{Brokers: 1, Properties: map[string]string{"num.io.threads": "many"}})
	require.ErrorContains(t, err, "num.io.threads")
	require.Less(t, time.Since(begin), 60*time.Second)
}

// Brokers die with a test process that is killed and can clean up nothing.
func TestClusterDiesWithParent(t *testing.T) {
	const env = "ROLLCALL_KAFKATEST_CHILD"
	if os.Getenv(env) == "1" {
		c, err := StartCluster(context.Background(), Options{Brokers: 1, Dir: os.Getenv(env + "_DIR")})
		if err != nil {
			fmt.Println("error", err)
			return
		}
		fmt.Println("pid", c.nodes[0].proc.cmd.Process.Pid)
		select {}
	}
	SkipOrRequire(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestClusterDiesWithParent$")
	cmd.Env = append(os.Environ(), env+"=1", env+"_DIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var line bytes.Buffer
	buf := make([]byte, 512)
	for !strings.Contains(line.String(), "\n") {
		n, err := out.Read(buf)
		line.Write(buf[:n])
		require.NoError(t, err)
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	text, ok := strings.CutPrefix(strings.TrimSpace(line.String()), "pid ")
	require.True(t, ok, line.String())
	pid, err := strconv.Atoi(text)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	}, 10*time.Second, 20*time.Millisecond)
}

func TestAvailable(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	require.ErrorIs(t, Available(), ErrUnavailable)
	_, err := StartCluster(t.Context(), Options{})
	require.ErrorIs(t, err, ErrUnavailable)
}
