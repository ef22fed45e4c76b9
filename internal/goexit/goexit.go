// Package goexit makes a loop over users' functions survive one that ends its goroutine.
package goexit

// Each calls f with each item. If f panics, or ends the goroutine by runtime.Goexit, a deferred
// call passes on the items that are left.
func Each[T any](all []T, f func(T)) {
	defer func() {
		if len(all) > 0 {
			Each(all, f)
		}
	}()
	for len(all) > 0 {
		item := all[0]
		all = all[1:]
		f(item)
	}
}
