package e2e

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/kafkatest"
	"rollcall/pkg/oracle"
	"rollcall/pkg/sink/starrockstest"
)

// TestScreenshots takes the pictures of the status page in docs/. It is no test: it runs only where ROLLCALL_SCREENSHOTS names a directory (from
// here: ROLLCALL_SCREENSHOTS=../../docs).
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("ROLLCALL_SCREENSHOTS")
	if dir == "" {
		t.Skip("takes pictures; set ROLLCALL_SCREENSHOTS to a directory")
	}
	dir, err := filepath.Abs(dir)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	kafka := fake(t)
	r := newRig(t, kafka.Addrs(), starrockstest.Config{})
	w := r.worker("rollcall-0", "ALLOWED_LATENESS=96h", "FLUSH_INTERVAL=2s")
	require.NoError(t, w.Start())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	require.NoError(t, r.produce(ctx, oracle.NewGenerator(3, 20000, time.Now().Add(-96*time.Hour), 96*time.Hour), 100_000, 0))
	go func() { // a stream that goes on
		gen := oracle.NewGenerator(4, 20000, time.Now().Add(-10*time.Minute), 10*time.Minute)
		_ = r.produce(ctx, gen, 1_000_000, 500)
	}()
	shot := func(name, width string, more ...string) {
		args := append([]string{
			"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir=" + t.TempDir(),
			"--virtual-time-budget=7000", "--window-size=" + width, "--screenshot=" + filepath.Join(dir, name),
		}, more...)
		out, err := exec.CommandContext(ctx, "chromium", append(args, "http://"+w.Addr()+"/")...).CombinedOutput()
		require.NoError(t, err, string(out))
		require.FileExists(t, filepath.Join(dir, name), string(out))
		require.NoError(t, fewColours(filepath.Join(dir, name)))
	}
	const dark = "--blink-settings=preferredColorScheme=0"
	time.Sleep(12 * time.Second)
	shot("status-healthy.png", "1100,1360")
	shot("status-phone.png", "390,1100", dark)
	r.rocks.Inject(starrockstest.Fault{At: starrockstest.AtFE, Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Reset()}})
	time.Sleep(70 * time.Second)
	shot("status-starrocks-away.png", "1100,1360", dark)
	r.rocks.Heal()
	time.Sleep(5 * time.Second)
	require.NoError(t, kafka.Set(kafkatest.Refuse, 1))
	time.Sleep(20 * time.Second)
	shot("status-broker-away.png", "1100,1360")
}

// fewColours writes a picture anew with its 256 most frequent colours, which is a third of the bytes and looks the same: the rest are edges of
// letters.
func fewColours(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		return err
	}
	often := map[color.RGBA]int{}
	all := img.Bounds()
	at := func(x, y int) color.RGBA { c, _ := color.RGBAModel.Convert(img.At(x, y)).(color.RGBA); return c }
	for y := all.Min.Y; y < all.Max.Y; y++ {
		for x := all.Min.X; x < all.Max.X; x++ {
			often[at(x, y)]++
		}
	}
	order := slices.SortedFunc(maps.Keys(often), func(a, b color.RGBA) int { return often[b] - often[a] })
	palette := make(color.Palette, 0, 256)
	for _, c := range order[:min(256, len(order))] {
		palette = append(palette, c)
	}
	small := image.NewPaletted(all, palette)
	index := map[color.RGBA]uint8{}
	for y := all.Min.Y; y < all.Max.Y; y++ {
		for x := all.Min.X; x < all.Max.X; x++ {
			c := at(x, y)
			i, ok := index[c]
			if !ok {
				i = uint8(palette.Index(c)) //nolint:gosec // at most 255
				index[c] = i
			}
			small.SetColorIndex(x, y, i)
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644) //nolint:gosec // a picture for everybody
}
