package starrocks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRotation(t *testing.T) {
	now := time.Unix(1000, 0)
	r := newRotation(3)
	require.Equal(t, []int{0, 1, 2}, r.order(now))
	require.True(t, r.failed(0, now))
	require.False(t, r.failed(0, now), "was down already")
	require.Equal(t, []int{1, 2, 0}, r.order(now))
	require.True(t, r.failed(1, now.Add(time.Second)))
	require.True(t, r.failed(2, now.Add(2*time.Second)))
	require.Equal(t, []int{0, 1, 2}, r.order(now.Add(3*time.Second)), "all down: the longest down first")
	require.True(t, r.worked(2))
	require.Equal(t, []int{2, 0, 1}, r.order(now.Add(3*time.Second)))
	require.False(t, r.worked(2))
	r.advance(1)
	require.Equal(t, 2, r.order(now)[0], "advance moves only what is first")
	r.advance(2)
	require.Equal(t, []int{0, 1, 2}, r.order(now.Add(downTime+2*time.Second)), "down only for a while")
}

// Whatever happens, every server is in the order once, and those that are up come first.
func TestRotationOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "n")
		r := newRotation(n)
		now := time.Unix(0, 0)
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "i")
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				r.failed(i, now)
			case 1:
				r.worked(i)
				require.Equal(t, i, r.order(now)[0])
			case 2:
				r.advance(i)
			case 3:
				now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "s")) * time.Second)
			}
			order := r.order(now)
			require.Len(t, order, n)
			seen, down := map[int]bool{}, false
			for _, i := range order {
				require.False(t, seen[i])
				seen[i] = true
				isDown := now.Before(r.down[i])
				require.False(t, down && !isDown, "an up server after one that is down")
				down = isDown
			}
		}
	})
}
