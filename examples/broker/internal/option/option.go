package option

import "fmt"

// Check checks options that have a default and a range each. It keeps the first error.
type Check struct{ Err error }

// Fill sets an option that is zero to its default, and checks that it lies between
// least and most, both inclusive.
func Fill[N ~int | ~int16 | ~int32 | ~int64](b *Check, name string, value *N, byDefault, least, most N) {
	if *value == 0 {
		*value = byDefault
	}
	if (*value < least || *value > most) && b.Err == nil {
		b.Err = fmt.Errorf("broker: %s is %v, must be from %v to %v", name, *value, least, most)
	}
}
