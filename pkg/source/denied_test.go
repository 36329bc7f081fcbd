package source

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Wrong credentials: said once, with who and where, and not hammered.
func TestLoginRefused(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		// As Kafka answers; kfake closes the connection.
		w.kafka.ControlKey(int16(kmsg.SASLAuthenticate), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			w.kafka.KeepControl()
			resp := kreq.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			resp.ErrorCode, resp.ErrorMessage = kerr.SaslAuthenticationFailed.Code, kmsg.StringPtr("wrong password")
			return resp, nil, true
		})
		var dials atomic.Int64
		m := w.join(func(c *Config, _ *notes) {
			security, err := SecurityOptions(SecurityConfig{Mechanism: MechanismScramSHA256, Username: "worker", Password: "wrong"})
			require.NoError(t, err)
			c.Principal = "worker"
			c.Security = append(security, kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return w.net.DialContext(ctx, network, addr)
			}))
		})
		defer m.leave()
		time.Sleep(2 * time.Minute)
		es := m.notes.of(EventDenied)
		require.NotEmpty(t, es)
		require.LessOrEqual(t, len(es), 2, "once per broker")
		require.ErrorIs(t, es[0].Err, kerr.SaslAuthenticationFailed)
		require.ErrorContains(t, es[0].Err, "as worker to the broker at localhost:909")
		require.Empty(t, m.notes.of(EventRecovered))
		t.Log("dials", dials.Load())
		require.Less(t, dials.Load(), int64(240), "one per second and broker at most")
		require.Zero(t, m.notes.owned())
	}, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "admin", "secret"), kfake.User("SCRAM-SHA-256", "worker", "right"))
}

// The group refuses the member for a while: said once for the whole client, over when there is an assignment.
func TestGroupRefuses(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		h := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, TopLevel: true, Err: kerr.GroupAuthorizationFailed, Count: -1})
		m := w.join(nil)
		defer m.leave()
		time.Sleep(time.Minute)
		es := m.notes.of(EventDenied)
		require.Len(t, es, 1)
		require.ErrorIs(t, es[0].Err, kerr.GroupAuthorizationFailed)
		require.Equal(t, Partition{}, es[0].Partition)
		require.Empty(t, m.notes.of(EventRecovered))
		h.Remove()
		w.eventually(10*time.Second, "assigned", func() bool { return m.notes.owned() == 1 && len(m.notes.of(EventRecovered)) == 1 })
	})
}

// A topic that may not be described: nobody owns a partition of it, so the client as a whole is told, with the topic's name.
func TestTopicRefusedAtTheStart(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		h := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Err: kerr.TopicAuthorizationFailed, Count: -1})
		m := w.join(nil)
		defer m.leave()
		time.Sleep(time.Minute)
		es := m.notes.of(EventDenied)
		require.Len(t, es, 1)
		require.ErrorIs(t, es[0].Err, kerr.TopicAuthorizationFailed)
		require.ErrorContains(t, es[0].Err, "topic t")
		require.Equal(t, Partition{}, es[0].Partition)
		h.Remove()
		w.eventually(10*time.Second, "assigned", func() bool { return m.notes.owned() == 1 })
		w.eventually(20*time.Second, "recovered", func() bool { return len(m.notes.of(EventRecovered)) == 1 })
	})
}

// Owners are told of what concerns their topic; records of before go on flowing and do not end it.
func TestTopicRefusedLater(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "assigned", func() bool { return m.notes.owned() == 2 })
		w.produce(topic, 1, 0, 1)
		h := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Err: kerr.TopicAuthorizationFailed, Count: -1})
		m.Refresh()
		for range 30 {
			time.Sleep(time.Second)
			m.Refresh()
		}
		es := m.notes.of(EventDenied)
		require.Len(t, es, 2)
		require.Equal(t, []Partition{part(0), part(1)}, []Partition{es[0].Partition, es[1].Partition})
		require.Equal(t, m.notes.gen(part(0)), es[0].Generation)
		require.Empty(t, m.notes.of(EventRecovered))
		h.Remove()
		w.eventually(20*time.Second, "recovered", func() bool { return len(m.notes.of(EventRecovered)) == 2 })
	})
}

// The commit of one partition may not be read when it is assigned: the client would never fetch it; it does once that is allowed.
func TestCommitRefusedWhenAssigned(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.produce(topic, 5, 0, 1)
		h := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Partitions: []int32{0}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "the other", func() bool { return m.notes.at(part(1)) == 5 })
		time.Sleep(time.Minute)
		require.Zero(t, m.Status().Rebuilds)
		require.Len(t, m.notes.of(EventDenied), 1)
		require.Empty(t, m.notes.of(EventRecovered))
		h.Remove()
		w.eventually(15*time.Second, "records", func() bool { return m.notes.at(part(0)) == 5 })
	})
}

// A batch that inflates beyond the limit stops its partition only, is tried again without end, and can be stepped over.
func TestBatchThatCannotBeInflated(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.produce(topic, 3, 0, 1)
		bomb := w.client(kgo.ProducerBatchCompression(kgo.GzipCompression()))
		defer bomb.Close()
		require.NoError(t, bomb.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: bytes.Repeat([]byte{'0'}, 100_000)}).FirstErr())
		w.produce(topic, 3, 0, 1)
		m := w.join(func(c *Config, _ *notes) { c.Security = append(c.Security, kgo.MaxDecompressBatchBytes(10_000)) })
		defer m.leave()
		w.eventually(10*time.Second, "stuck", func() bool { return len(m.notes.of(EventStuck)) == 1 })
		time.Sleep(time.Minute)
		require.Len(t, m.notes.of(EventStuck), 1)
		e := m.notes.of(EventStuck)[0]
		require.Equal(t, []int64{3, 4}, []int64{e.From, e.To})
		require.Empty(t, m.notes.of(EventRecovered))
		require.Equal(t, sequence(0, 3), m.notes.read(part(0)))
		require.Equal(t, sequence(0, 6), m.notes.read(part(1)))
		require.NoError(t, m.Start(part(0), e.Generation, e.To, -1))
		w.eventually(10*time.Second, "stepped over", func() bool { return m.notes.at(part(0)) == 7 })
		require.Equal(t, append(sequence(0, 3), sequence(4, 7)...), m.notes.read(part(0)))
		require.Len(t, m.notes.of(EventRecovered), 1)
	})
}

// A batch that arrives damaged is not stepped over: it is fetched again until it is whole.
func TestDamagedBatch(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		var damage atomic.Bool
		damage.Store(true)
		m := w.join(func(c *Config, _ *notes) {
			c.Security = []kgo.Opt{kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := w.net.DialContext(ctx, network, addr)
				return &damagedConn{Conn: conn, damage: &damage}, err
			})}
		})
		defer m.leave()
		require.NoError(t, w.prod.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: bytes.Repeat([]byte{'7'}, 5000)}).FirstErr())
		w.produce(topic, 3, 0)
		w.eventually(10*time.Second, "stuck", func() bool { return len(m.notes.of(EventStuck)) == 1 })
		require.Equal(t, []int64{0, -1}, []int64{m.notes.of(EventStuck)[0].From, m.notes.of(EventStuck)[0].To})
		time.Sleep(time.Minute)
		require.Len(t, m.notes.of(EventStuck), 1)
		require.Empty(t, m.notes.read(part(0)))
		damage.Store(false)
		w.eventually(10*time.Second, "whole", func() bool { return m.notes.at(part(0)) == 4 })
		require.Equal(t, sequence(0, 4), m.notes.read(part(0)))
		require.Len(t, m.notes.of(EventRecovered), 1)
	})
}

// damagedConn changes a byte of what is long.
type damagedConn struct {
	net.Conn
	damage *atomic.Bool
}

func (c *damagedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if i := bytes.LastIndexByte(b[:n], '7'); i >= 0 && c.damage.Load() && bytes.Count(b[:n], []byte{'7'}) > 100 {
		b[i] = '8'
	}
	return n, err
}
