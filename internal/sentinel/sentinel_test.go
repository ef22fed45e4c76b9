package sentinel

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorsOfAKindMatch(t *testing.T) {
	for _, kinds := range [][2]func(string) error{{Closed, Full}, {Full, Closed}} {
		err := fmt.Errorf("wrapped: %w", kinds[0]("a: it is so"))
		require.EqualError(t, err, "wrapped: a: it is so")
		require.ErrorIs(t, err, kinds[0]("b: so is it"))
		require.NotErrorIs(t, err, kinds[1]("a: it is so"))
		require.NotErrorIs(t, err, errors.New("a: it is so"))
	}
}
