package starrocks

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"rollcall/pkg/sink"
)

// Compression is how the body of a load is compressed, as StarRocks calls it (STREAM_LOAD.md, compression; JSON since 3.2.7).
type Compression string

// The compressions (setting LOAD_COMPRESSION).
const (
	CompressionNone Compression = "none"
	CompressionGzip Compression = "gzip"
	CompressionZstd Compression = "zstd"
	CompressionLZ4  Compression = "lz4_frame"
)

// plainFor is how long bodies go uncompressed after a server could not read one; a cluster may be upgraded meanwhile.
const plainFor = time.Hour

func (c Compression) check() error {
	known := []Compression{"", CompressionNone, CompressionGzip, CompressionZstd, CompressionLZ4}
	if !slices.Contains(known, c) {
		return fmt.Errorf("compression %q: want one of none, gzip, zstd, lz4_frame", string(c))
	}
	return nil
}

// packer compresses bodies unless the server was seen not to read them. Safe for concurrent use.
type packer struct {
	how   Compression
	plain atomic.Int64 // until when bodies stay as they are, Unix ns
}

func (p *packer) refused(now time.Time) { p.plain.Store(now.Add(plainFor).UnixNano()) }

// pack compresses a body into one frame: a back end reads no further than the end of the first one and would not miss the rest
// (be stream_load_pipe.cpp, CompressedStreamLoadPipeReader).
func (p *packer) pack(body sink.Body, now time.Time) (sink.Body, error) {
	if p.how == "" || p.how == CompressionNone || now.UnixNano() < p.plain.Load() {
		return body, nil
	}
	var out bytes.Buffer
	out.Grow(len(body.Data) / 5 * 4) // bitmaps of hashes come to 0.75; growing later would hold more at once
	w, err := p.writer(&out)
	if err == nil {
		_, err = w.Write(body.Data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return sink.Body{}, fmt.Errorf("compress %d rows with %s: %w", body.Rows, p.how, err)
	}
	body.Data, body.Encoding = out.Bytes(), string(p.how)
	return body, nil
}

// writer is fast rather than thorough: most of a body is base64 of bitmaps, of which any method saves about a quarter and none much more.
func (p *packer) writer(out io.Writer) (io.WriteCloser, error) {
	switch p.how {
	case CompressionGzip:
		return gzip.NewWriterLevel(out, gzip.BestSpeed)
	case CompressionZstd:
		return zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	default:
		return lz4.NewWriter(out), nil
	}
}
