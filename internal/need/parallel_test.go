package need

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
)

// Not parallel: it changes the test binary's flags.
func TestParallel(t *testing.T) {
	before := flag.Lookup("test.parallel").Value.String()
	defer func() { _ = flag.Set("test.parallel", before) }()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		require.NoError(t, Parallel(37))
		require.Equal(t, "37", flag.Lookup("test.parallel").Value.String())
	}
	require.NoError(t, flag.Set("test.parallel", "3")) // as the command line does
	require.NoError(t, Parallel(37))
	require.Equal(t, "3", flag.Lookup("test.parallel").Value.String())
}
