//go:build !unix

package wire

import "errors"

// writeTo is not supported here: a goroutine sends every response.
func writeTo(uintptr, []byte) (n int, err error) { return 0, errors.ErrUnsupported }
