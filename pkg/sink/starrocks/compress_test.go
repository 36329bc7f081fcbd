package starrocks

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/bitmap"
	"rollcall/pkg/sink"
	"rollcall/pkg/sink/starrockstest"
)

// spread is a part of so many rows with bitmaps of ids that do not compress.
func spread(rows int) sink.Part {
	part := sink.Part{Source: "s", Next: int64(rows)}
	id := uint64(1)
	for i := range rows {
		row := testRow(aggregate.Day(19723 + i))
		ids := make([]uint64, 500)
		for k := range ids {
			id = id*6364136223846793005 + 1442695040888963407
			ids[k] = id
		}
		row.Cells = []aggregate.Cell{{Set: bitmap.Of(ids...)}, {Int: 1}, {Int: 1}, {Null: true}, {Int: 1}}
		part.Rows = append(part.Rows, row)
	}
	return part
}

// Every compression arrives whole, under its own name, in one frame, and costs fewer bytes; what is sent again is the same.
func TestCompressedBodies(t *testing.T) {
	for how, magic := range map[Compression]string{CompressionGzip: "\x1f\x8b\x08", CompressionZstd: "\x28\xb5\x2f\xfd", CompressionLZ4: "\x04\x22\x4d\x18"} {
		t.Run(string(how), func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				r := standIn(t, n, starrockstest.Config{FEs: 2})
				plain := r.client(nil)
				c := r.client(func(cfg *Config) { cfg.Compression = how })
				part := spread(40)
				want, err := plain.Encode([]sink.Part{part})
				require.NoError(t, err)
				require.Equal(t, sink.Body{Data: want.Data, Size: len(want.Data), Rows: 40}, want)
				body, err := c.Encode([]sink.Part{part})
				require.NoError(t, err)
				require.Equal(t, string(how), body.Encoding)
				require.Equal(t, want.Size, body.Size)
				require.Equal(t, 40, body.Rows)
				require.Less(t, len(body.Data), body.Size)
				require.True(t, bytes.HasPrefix(body.Data, []byte(magic)))
				require.Equal(t, 1, bytes.Count(body.Data, []byte(magic)), "a back end reads the first frame only")
				t.Logf("%s: %d of %d bytes", how, len(body.Data), body.Size)

				r.inject(starrockstest.Fault{At: starrockstest.AtCommit, Do: []starrockstest.Action{starrockstest.Fail(starrockstest.MsgTooManyVersions)}})
				require.Equal(t, 2, deliver(t, c, "L", body))
				loads := r.cluster.Loads()
				require.Len(t, loads, 2)
				require.Equal(t, loads[0].SHA256, loads[1].SHA256, "one label, one body")
				require.EqualValues(t, len(body.Data), loads[1].Bytes)
				require.EqualValues(t, 40*500, r.uv())
			})
		})
	}
}

// A server that does not know compression gets the next body as it is, until it may have been upgraded.
func TestServerWithoutCompression(t *testing.T) {
	answers := map[string]struct {
		fault *starrockstest.Fault // else the stand-in's own answer
		says  string
	}{
		"no JSON":           {says: "illegal json started with ("},
		"empty body":        {faultAt(starrockstest.AtBegun, starrockstest.Fail("all partitions have no load data")), "no load data"},
		"success of no row": {faultAt(starrockstest.AtCommitted, starrockstest.Miscount(-10)), "none of 10 rows"},
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) { testWithoutCompression(t, answer.fault, answer.says) })
	}
}

func testWithoutCompression(t *testing.T, fault *starrockstest.Fault, says string) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{NoCompression: fault == nil})
		if fault != nil {
			r.inject(*fault)
		}
		c := r.client(func(cfg *Config) { cfg.Compression = CompressionZstd })
		encode := func() sink.Body {
			body, err := c.Encode([]sink.Part{spread(10)})
			require.NoError(t, err)
			return body
		}
		body := encode()
		rep := c.Load(t.Context(), "L1", body)
		require.Equal(t, sink.OutcomeFailed, rep.Outcome)
		require.Equal(t, sink.ClassUnreadable, rep.Class)
		require.Equal(t, ReasonUnreadable, rep.Reason)
		require.ErrorContains(t, rep.Err, says)
		for range 3 {
			body = encode()
			require.Empty(t, body.Encoding)
			require.Len(t, body.Data, body.Size)
			requireDone(t, c.Load(t.Context(), fmt.Sprint("P", time.Now().Unix()), body))
			time.Sleep(19 * time.Minute)
		}
		time.Sleep(5 * time.Minute)
		require.Equal(t, "zstd", encode().Encoding, "an hour later")
	})
}

func faultAt(at starrockstest.Point, do ...starrockstest.Action) *starrockstest.Fault {
	return &starrockstest.Fault{At: at, Do: do}
}

// A body that was never compressed and is not understood is somebody's mistake: it is not encoded again and again.
func TestPlainBodyThatIsNotRead(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		rep := r.client(nil).Load(t.Context(), "L", sink.Body{Data: []byte("{"), Size: 1, Rows: 1})
		require.Equal(t, sink.OutcomeFailed, rep.Outcome)
		require.Equal(t, sink.ClassPermanent, rep.Class)
		require.Equal(t, ReasonUnreadable, rep.Reason)
	})
}

func TestUnknownCompression(t *testing.T) {
	cfg := testConfig(nil, "http://fe:8030")
	cfg.Compression = "brotli"
	_, err := New(cfg)
	require.ErrorContains(t, err, `compression "brotli": want one of none, gzip, zstd, lz4_frame`)
}

func BenchmarkCompress(b *testing.B) {
	l := newLayout(testDims(), testMeasures())
	body, err := l.encode([]sink.Part{spread(2000)})
	require.NoError(b, err)
	for _, how := range []Compression{CompressionGzip, CompressionZstd, CompressionLZ4} {
		b.Run(string(how), func(b *testing.B) {
			p := packer{how: how}
			b.SetBytes(int64(body.Size))
			b.ReportAllocs()
			for b.Loop() {
				packed, err := p.pack(body, time.Now())
				require.NoError(b, err)
				b.ReportMetric(float64(len(packed.Data))/float64(packed.Size), "of-size")
			}
		})
	}
}
