// Package sentinel has the errors that mean the same in all packages of limbo. Each has a
// text of its own, and errors.Is takes it for the others, so a program that uses several
// packages can test for one of them.
package sentinel

type closed struct{ text string }

// Closed returns an error for what came after a Close or Shutdown.
func Closed(text string) error { return &closed{text} }

func (e *closed) Error() string { return e.text }

// Is makes all errors of Closed match.
func (*closed) Is(target error) bool {
	_, ok := target.(*closed)
	return ok
}

type full struct{ text string }

// Full returns an error for what would have been more than a bound.
func Full(text string) error { return &full{text} }

func (e *full) Error() string { return e.text }

// Is makes all errors of Full match.
func (*full) Is(target error) bool {
	_, ok := target.(*full)
	return ok
}
