package option

import "fmt"

// Check collects the first error of a series of Fill calls.
type Check struct{ Err error }

// Fill sets a zero option to its default, and checks that the option is between least and most,
// inclusive.
func Fill[N ~int | ~int16 | ~int32 | ~int64](b *Check, name string, value *N, byDefault, least, most N) {
	if *value == 0 {
		*value = byDefault
	}
	if (*value < least || *value > most) && b.Err == nil {
		b.Err = fmt.Errorf("broker: %s is %v, must be from %v to %v", name, *value, least, most)
	}
}
