// Package goexit makes loops over users' functions survive one that ends its goroutine by
// runtime.Goexit, after which only deferred calls still run.
package goexit

// Resume is deferred by a loop over users' functions, which sets done at its end. If one of them
// ends the goroutine, or panics, Resume goes on with the rest, so that nothing is missed because
// of another one.
func Resume(done *bool, rest func()) {
	if !*done {
		rest()
	}
}

// Each calls f with each item, even if f ends the goroutine or panics.
func Each[T any](all []T, f func(T)) {
	done := false
	defer Resume(&done, func() { Each(all, f) })
	for len(all) > 0 {
		item := all[0]
		all = all[1:]
		f(item)
	}
	done = true
}
