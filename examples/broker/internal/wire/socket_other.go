//go:build !unix

package wire

import "errors"

// writeTo writes nothing here: every answer is left to a goroutine.
func writeTo(uintptr, []byte) (n int, err error) { return 0, errors.ErrUnsupported }
