package openfiles

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The limit allows the files that this process opens.
func TestLimit(t *testing.T) {
	files := make([]*os.File, 20)
	for i := range files {
		var err error
		files[i], err = os.Open(os.DevNull)
		require.NoError(t, err)
		defer files[i].Close()
	}
	require.Greater(t, Limit(), len(files))
	require.LessOrEqual(t, Limit(), 1<<30)
}
