package need

import (
	"flag"
	"strconv"
)

// Parallel lets n tests run in parallel, unless the flag -parallel sets another number; the
// default is the number of processors. Call it in a TestMain if most tests wait.
func Parallel(n int) error {
	if !flag.Parsed() {
		flag.Parse()
	}
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if chosen {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(n))
}
