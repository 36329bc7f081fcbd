package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"rollcall/pkg/aggregate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var fileMeasures = []aggregate.Measure{
	{Name: "uv", Kind: aggregate.Distinct, Field: "user"}, {Name: "pv", Kind: aggregate.Count}, {Name: "cheapest", Kind: aggregate.Min, Field: "price"},
}

// fileStore is a File on dir, and what it logs.
func fileStore(dir string) (*File, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.DebugLevel)
	return NewFile(FileConfig{Dir: dir, Target: target, Dimensions: 1, Measures: fileMeasures, Lateness: 48 * time.Hour, Log: zap.New(core)}), logs
}

func fileRow(day int, key string, pv, lowest int64) aggregate.Row {
	return aggregate.Row{
		Day: aggregate.Day(day), Dims: []string{key}, LastEventMs: int64(day)*86_400_000 + pv,
		Cells: []aggregate.Cell{{}, {Int: pv}, {Int: lowest, Null: lowest == 0}},
	}
}

func sortRows(rows []aggregate.Row) []aggregate.Row {
	slices.SortFunc(rows, func(a, b aggregate.Row) int { return int(a.Day-b.Day)*1000 + int(a.Dims[0][0]) - int(b.Dims[0][0]) })
	return rows
}

// cut is one Save that a test makes, and the name of the file it leaves.
func save(t *testing.T, f *File, h History, next int64, rows ...aggregate.Row) string {
	t.Helper()
	require.NoError(t, f.Save(t.Context(), h, next, rows))
	return filepath.Join(f.folder(h), fileName(next))
}

func TestFileSavesAndRestores(t *testing.T) {
	dir, h := t.TempDir(), hist(10, 4)
	f, _ := fileStore(dir)
	found, err := f.Progress(t.Context(), "t", 3)
	require.NoError(t, err)
	require.Empty(t, found)

	save(t, f, h, 20, fileRow(20000, "a", 5, 7), fileRow(20000, "b", 1, 0))
	save(t, f, h, 30, fileRow(20000, "a", 6, 3), fileRow(20001, "a", 1, 9))
	require.NoError(t, f.Save(t.Context(), h, 40, nil), "what counted nothing moves no total")
	require.Error(t, f.Save(t.Context(), h, 40, []aggregate.Row{{Day: 20000}}), "not a row of this table")
	save(t, f, hist(5, 2), 8, fileRow(19000, "z", 1, 1))
	other := h
	other.Partition = 4
	save(t, f, other, 99, fileRow(20000, "y", 1, 1))
	require.NoError(t, f.Close())

	f, logs := fileStore(dir)
	found, err = f.Progress(t.Context(), "t", 3)
	require.NoError(t, err)
	want := Progress{History: h, Next: 30, WatermarkMs: 20001*86_400_000 + 1, MaxDay: 20001}
	require.ElementsMatch(t, []Progress{want, {History: hist(5, 2), Next: 8, WatermarkMs: 19000*86_400_000 + 1, MaxDay: 19000}}, found)
	found, err = f.TopicProgress(t.Context(), "t")
	require.NoError(t, err)
	require.Len(t, found, 3)
	found, err = f.TopicProgress(t.Context(), "other")
	require.NoError(t, err)
	require.Empty(t, found)

	state, p, err := f.Restore(t.Context(), h, 20000)
	require.NoError(t, err)
	require.Equal(t, want, p)
	require.Equal(t, []aggregate.Row{fileRow(20000, "a", 6, 3), fileRow(20000, "b", 1, 0), fileRow(20001, "a", 1, 9)}, sortRows(state.Rows))
	require.Equal(t, aggregate.State{Next: 30, WatermarkMs: want.WatermarkMs, HasWatermark: true}, aggregate.State{Next: state.Next, WatermarkMs: state.WatermarkMs, HasWatermark: state.HasWatermark})
	state.Rows[0].Cells[1].Int = 1000 // the caller owns what it got
	state, _, err = f.Restore(t.Context(), h, 20001)
	require.NoError(t, err)
	require.Equal(t, []aggregate.Row{fileRow(20001, "a", 1, 9)}, state.Rows)
	require.Zero(t, logs.Len())
}

// TestFileMerges: a row that comes again, or late, changes nothing; the files are those of a restored store.
func TestFileMerges(t *testing.T) {
	f, _ := fileStore(t.TempDir())
	h := hist(10, 4)
	save(t, f, h, 30, fileRow(20000, "a", 6, 3))
	save(t, f, h, 20, fileRow(20000, "a", 5, 7))
	save(t, f, h, 30, fileRow(20000, "a", 6, 3))
	state, p, err := f.Restore(t.Context(), h, 0)
	require.NoError(t, err)
	require.Equal(t, int64(30), p.Next)
	require.Equal(t, []aggregate.Row{fileRow(20000, "a", 6, 3)}, state.Rows)
	entries, err := os.ReadDir(f.folder(h))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// TestFileKeepsThree also drops days that can't change any more.
func TestFileKeepsThree(t *testing.T) {
	f, _ := fileStore(t.TempDir())
	h := hist(10, 4)
	for i := range 6 {
		save(t, f, h, int64(20+i), fileRow(20000+i, "a", 1, 1))
	}
	cuts, err := f.cuts(h)
	require.NoError(t, err)
	require.Equal(t, []int64{25, 24, 23}, cuts)
	state, _, err := f.Restore(t.Context(), h, 0)
	require.NoError(t, err)
	require.Len(t, state.Rows, 3, "W − 48 h is in the day two before")
}

// TestFileFallsBack: a damaged newest file is passed over loudly, and the ones written after it are found again (acceptance 003-16, -18).
func TestFileFallsBack(t *testing.T) {
	h := hist(10, 4)
	for name, damage := range map[string]func(t *testing.T, path string){
		"one bit":   func(t *testing.T, path string) { edit(t, path, func(b []byte) []byte { b[len(b)/2] ^= 4; return b }) },
		"cut short": func(t *testing.T, path string) { edit(t, path, func(b []byte) []byte { return b[:len(b)-9] }) },
		"empty":     func(t *testing.T, path string) { edit(t, path, func([]byte) []byte { return nil }) },
		"its version": func(t *testing.T, path string) {
			edit(t, path, func(b []byte) []byte { b[5] = 9; return b })
		},
		"another cut's content": func(t *testing.T, path string) {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(path), fileName(20)))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, b, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f, _ := fileStore(dir)
			save(t, f, h, 20, fileRow(20000, "a", 5, 7))
			damage(t, save(t, f, h, 30, fileRow(20000, "a", 6, 3)))

			f, logs := fileStore(dir)
			state, p, err := f.Restore(t.Context(), h, 0)
			require.NoError(t, err)
			require.Equal(t, int64(20), p.Next)
			require.Equal(t, []aggregate.Row{fileRow(20000, "a", 5, 7)}, state.Rows)
			_, err = f.Progress(t.Context(), "t", 3)
			require.NoError(t, err)
			require.Equal(t, 1, logs.FilterLevelExact(zapcore.ErrorLevel).Len(), "once")

			f.cfg.Keep = 1
			save(t, f, h, 25, fileRow(20000, "a", 6, 6))
			_, p, err = f.Restore(t.Context(), h, 0)
			require.NoError(t, err)
			require.Equal(t, int64(25), p.Next, "a damaged file is not kept in a good one's place")
			save(t, f, h, 31, fileRow(20000, "a", 8, 6))
			state, p, err = f.Restore(t.Context(), h, 0)
			require.NoError(t, err)
			require.Equal(t, int64(31), p.Next)
			require.Equal(t, []aggregate.Row{fileRow(20000, "a", 8, 6)}, state.Rows)
		})
	}
}

func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, change(b), 0o600))
}

// TestFileRefuses has what exit 12 is for (acceptance 003-17, -18, -24): the message names both sides and the files stay as they are.
func TestFileRefuses(t *testing.T) {
	h := hist(10, 4)
	newer := func(b []byte) []byte {
		b[4], b[5], b[6], b[7] = 0, 9, 0xff, 0xf6
		return b
	}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, f *File, older, newest string)
		says  []string
	}{
		"all are damaged": {func(t *testing.T, _ *File, older, newest string) {
			for _, p := range []string{older, newest} {
				edit(t, p, func(b []byte) []byte { return b[1:] })
			}
		}, []string{h.String(), "CHECKPOINT_ALLOW_EMPTY"}},
		"a later format, even beside a good older file": {
			func(t *testing.T, _ *File, _, newest string) { edit(t, newest, newer) }, []string{"format 9", "knows 1", fileName(30)},
		},
		"another target's": {func(_ *testing.T, f *File, _, _ string) { f.cfg.Target = "db.other" }, []string{"db.dau", "db.other"}},
		"a file where the directory should be": {func(t *testing.T, f *File, older, _ string) {
			f.cfg.Dir = older
		}, []string{"not a directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := fileStore(t.TempDir())
			older := save(t, f, h, 20, fileRow(20000, "a", 5, 7))
			newest := save(t, f, h, 30, fileRow(20000, "a", 6, 3))
			c.spoil(t, f, older, newest)
			before, err := os.ReadFile(newest)
			require.NoError(t, err)
			f.open = map[History]*fileState{}
			_, err = f.Progress(t.Context(), "t", 3)
			refused := []error{err}
			_, _, err = f.Restore(t.Context(), h, 0)
			refused = append(refused, err, f.Save(t.Context(), h, 40, []aggregate.Row{fileRow(20000, "a", 6, 3)}))
			for i, err := range refused {
				require.True(t, IsPermanent(err), "%d: %v", i, err)
				for _, s := range c.says {
					require.ErrorContains(t, err, s)
				}
			}
			after, err := os.ReadFile(newest)
			require.NoError(t, err)
			require.Equal(t, before, after)
		})
	}
}

func TestFileOtherMeasures(t *testing.T) {
	f, _ := fileStore(t.TempDir())
	save(t, f, hist(10, 4), 20, fileRow(20000, "a", 5, 7))
	f.cfg.Measures = fileMeasures[:2]
	_, err := f.Progress(t.Context(), "t", 3)
	require.NoError(t, err, "what another program wrote can be listed")
	_, _, err = f.Restore(t.Context(), hist(10, 4), 0)
	require.True(t, IsPermanent(err))
}

// TestFileLeftovers: unfinished files are removed, what is not ours is ignored; both are said once.
func TestFileLeftovers(t *testing.T) {
	dir, h := t.TempDir(), hist(10, 4)
	f, _ := fileStore(dir)
	good := save(t, f, h, 20, fileRow(20000, "a", 5, 7))
	folder := filepath.Dir(good)
	unfinished := filepath.Join(folder, "0000000000000000030.123.ckpt.tmp")
	foreign := []string{
		filepath.Join(folder, "notes.txt"), filepath.Join(folder, "30.ckpt"), filepath.Join(dir, "t", "3", "README"), filepath.Join(dir, "t", "3", idA, "old", "x"),
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "t", "3", idA, "old"), 0o700))
	for _, p := range append(foreign, unfinished) {
		require.NoError(t, os.WriteFile(p, []byte("x"), 0o600))
	}
	f, logs := fileStore(dir)
	for range 2 {
		found, err := f.Progress(t.Context(), "t", 3)
		require.NoError(t, err)
		require.Len(t, found, 1)
	}
	require.NoFileExists(t, unfinished)
	for _, p := range foreign {
		require.FileExists(t, p)
	}
	require.Equal(t, 5, logs.Len())
	require.Equal(t, 5, logs.FilterLevelExact(zapcore.InfoLevel).Len())
}

// TestFileNotMounted: a directory that is not there is never an empty checkpoint; it is asked for again (acceptance 003-20).
func TestFileNotMounted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	f, _ := fileStore(dir)
	_, err := f.Progress(t.Context(), "t", 3)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.False(t, IsPermanent(err))
	_, err = f.TopicProgress(t.Context(), "t")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, _, err = f.Restore(t.Context(), hist(10, 4), 0)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, f.Save(t.Context(), hist(10, 4), 20, []aggregate.Row{fileRow(20000, "a", 1, 1)}), fs.ErrNotExist)
	require.NoDirExists(t, dir)
	require.NoError(t, os.Mkdir(dir, 0o700))
	_, err = f.Progress(t.Context(), "t", 3)
	require.NoError(t, err)
}

func TestFilePermission(t *testing.T) {
	f, _ := fileStore(t.TempDir())
	err := f.classify("a checkpoint", &fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES})
	require.True(t, IsPermanent(err))
	require.False(t, IsPermanent(f.classify("a checkpoint", &fs.PathError{Op: "open", Path: "x", Err: syscall.EIO})))
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	save(t, f, hist(10, 4), 20, fileRow(20000, "a", 1, 1))
	require.NoError(t, os.Chmod(f.folder(hist(10, 4)), 0))
	_, err = f.Progress(t.Context(), "t", 3)
	require.True(t, IsPermanent(err))
	require.NoError(t, os.Chmod(f.folder(hist(10, 4)), 0o700))
}

// TestFileWriteFails: the old file stays, what was not written is written by the next Save (acceptance 003-19).
func TestFileWriteFails(t *testing.T) {
	dir, h := t.TempDir(), hist(10, 4)
	f, _ := fileStore(dir)
	save(t, f, h, 20, fileRow(20000, "a", 5, 7))
	// A folder in the file's place: rename fails whoever the test runs as.
	blocked := filepath.Join(f.folder(h), fileName(30))
	require.NoError(t, os.MkdirAll(filepath.Join(blocked, "x"), 0o700))
	require.Error(t, f.Save(t.Context(), h, 30, []aggregate.Row{fileRow(20000, "b", 1, 1)}))
	entries, err := os.ReadDir(f.folder(h))
	require.NoError(t, err)
	require.Len(t, entries, 2, "no unfinished file stays")
	g, _ := fileStore(dir)
	_, p, err := g.Restore(t.Context(), h, 0)
	require.NoError(t, err)
	require.Equal(t, int64(20), p.Next)

	require.NoError(t, os.RemoveAll(blocked))
	save(t, f, h, 40, fileRow(20000, "c", 1, 1))
	state, p, err := g.Restore(t.Context(), h, 0)
	require.NoError(t, err)
	require.Equal(t, int64(40), p.Next)
	require.Equal(t, []aggregate.Row{fileRow(20000, "a", 5, 7), fileRow(20000, "b", 1, 1), fileRow(20000, "c", 1, 1)}, sortRows(state.Rows))
}

// TestFileDoesNotHang: a file system that does not answer costs a call its deadline, and later calls theirs.
func TestFileDoesNotHang(t *testing.T) {
	f, _ := fileStore(t.TempDir())
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	entered := make(chan struct{})
	go func() {
		<-entered
		cancel()
	}()
	_, err := take(ctx, f, func() (int, error) {
		close(entered)
		<-release
		return 1, nil
	})
	require.ErrorIs(t, err, context.Canceled)
	_, err = f.Progress(ctx, "t", 3)
	require.ErrorIs(t, err, context.Canceled)
	close(release)
	_, err = f.Progress(t.Context(), "t", 3)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// TestFileFixture reads a file as the first released version wrote it.
func TestFileFixture(t *testing.T) {
	const fixture = "testdata/v1.ckpt"
	h := hist(10, -1)
	m := &image{
		progress: Progress{History: h, Next: 300, WatermarkMs: 1_780_000_000_123, MaxDay: 20601}, target: target, dims: 1,
		kinds: []aggregate.Kind{aggregate.Distinct, aggregate.Count, aggregate.Min}, rows: []aggregate.Row{fileRow(20600, "köln", 5, 7), fileRow(20601, "", 1, 0)},
	}
	if os.Getenv("UPDATE_FIXTURE") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(fixture, m.encode(), 0o600))
	}
	b, err := os.ReadFile(fixture)
	require.NoError(t, err)
	got, err := decodeImage(fixture, b)
	require.NoError(t, err)
	require.Equal(t, m, got)
}

func TestImageRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &image{
			progress: Progress{
				History: historyGen.Draw(t, "history"), Next: rapid.Int64Min(1).Draw(t, "next"), WatermarkMs: rapid.Int64().Draw(t, "w"),
				MaxDay: aggregate.Day(rapid.Int32().Draw(t, "day")),
			},
			target: rapid.String().Draw(t, "target"), dims: rapid.IntRange(0, 3).Draw(t, "dims"),
			kinds: rapid.SliceOfN(rapid.SampledFrom([]aggregate.Kind{aggregate.Count, aggregate.Distinct, aggregate.DistinctHash, aggregate.Sum, aggregate.Min, aggregate.Max}), 0, 4).Draw(t, "kinds"),
			rows:  []aggregate.Row{},
		}
		for range rapid.IntRange(0, 4).Draw(t, "rows") {
			r := aggregate.Row{Day: aggregate.Day(rapid.Int32().Draw(t, "d")), Dims: make([]string, m.dims), Cells: make([]aggregate.Cell, len(m.kinds)), LastEventMs: rapid.Int64().Draw(t, "last")}
			for i := range r.Dims {
				r.Dims[i] = rapid.String().Draw(t, "dim")
			}
			for i, k := range m.kinds {
				if !k.IsSet() {
					r.Cells[i].Null = rapid.Bool().Draw(t, "null")
					if !r.Cells[i].Null {
						r.Cells[i].Int = rapid.Int64().Draw(t, "int")
					}
				}
			}
			m.rows = append(m.rows, r)
		}
		b := m.encode()
		got, err := decodeImage("x", b)
		require.NoError(t, err)
		require.Equal(t, m, got)

		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		_, err = decodeImage("x", b)
		var newer *NewerFormatError
		require.False(t, err == nil || errors.As(err, &newer), "one changed byte is damage: %v", err)
	})
}

func FuzzDecodeImage(f *testing.F) {
	m := &image{
		progress: Progress{History: hist(10, 4), Next: 30, WatermarkMs: 5, MaxDay: 20000}, target: target, dims: 1,
		kinds: []aggregate.Kind{aggregate.Distinct, aggregate.Count, aggregate.Min}, rows: []aggregate.Row{fileRow(20000, "a", 5, 7), fileRow(20001, "b", 1, 0)},
	}
	f.Add(m.encode()[fileHeader:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, payload []byte) {
		// With the right checksum, or nothing but the checksum would be tested.
		b := append([]byte(fileMagic+"\x00\x01\xff\xfe"), payload...)
		sum := castagnoli(b)
		b = append(b, byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
		m, err := decodeImage("x", b)
		if err != nil {
			require.ErrorIs(t, err, errDamaged)
			return
		}
		again, err := decodeImage("x", m.encode())
		require.NoError(t, err)
		require.Equal(t, m, again)
		_, err = decodeImage("x", payload)
		require.Error(t, err)
	})
}
