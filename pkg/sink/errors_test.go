package sink

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInnermost(t *testing.T) {
	root := errors.New("root")
	for name, err := range map[string]error{
		"itself":        root,
		"wrapped":       fmt.Errorf("a: %w", fmt.Errorf("b: %w", root)),
		"joined":        errors.Join(fmt.Errorf("a: %w", root), errors.New("other")),
		"two in one":    fmt.Errorf("%w and %w", root, errors.New("other")),
		"in a panic":    &PanicError{Value: root},
		"empty unwraps": root,
	} {
		require.Equal(t, root, innermost(err), name)
	}
	p := &PanicError{Value: "not an error"}
	require.Equal(t, error(p), innermost(p))
	require.ErrorContains(t, p, "not an error")
}

func TestNotDurableErrorSaysEverything(t *testing.T) {
	last := errors.New("access denied")
	var err error = &NotDurableError{Labels: []string{"w-1-7"}, Sources: []string{"t/0/x below 5", "t/1/x below 9"}, Last: last, Cause: context.DeadlineExceeded}
	require.EqualError(t, err, "2 sources not known to be durable: t/0/x below 5, t/1/x below 9 (labels w-1-7): access denied (context deadline exceeded)")
	require.ErrorIs(t, err, ErrNotDurable)
	require.ErrorIs(t, err, last)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.EqualError(t, &NotDurableError{Sources: []string{"a", "b", "c", "d", "e"}}, "5 sources not known to be durable: a, b, c and 2 more")
	require.EqualError(t, &NotDurableError{Sources: []string{"a"}}, "1 sources not known to be durable: a")
}

func TestClassNames(t *testing.T) {
	require.Equal(t, "transient permanent overload refused too_large invalid", fmt.Sprint(
		ClassTransient, " ", ClassPermanent, " ", ClassOverload, " ", ClassRefused, " ", ClassTooLarge, " ", Class(99)))
}
