// Package sentinel has the errors with the same meaning in all packages of limbo. Each has its
// own text, and errors.Is treats all of a kind as equal, so a program that uses several packages
// can test for any one of them.
package sentinel

type closed struct{ text string }

// Closed returns an error for calls after a Close or Shutdown.
func Closed(text string) error { return &closed{text} }

func (e *closed) Error() string { return e.text }

// Is makes all errors of Closed match.
func (*closed) Is(target error) bool {
	_, ok := target.(*closed)
	return ok
}

type full struct{ text string }

// Full returns an error for calls that would exceed a limit.
func Full(text string) error { return &full{text} }

func (e *full) Error() string { return e.text }

// Is makes all errors of Full match.
func (*full) Is(target error) bool {
	_, ok := target.(*full)
	return ok
}
