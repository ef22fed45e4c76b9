// Package settings is what clients are told of configurations, and what of them they can
// change.
//
// A value has up to three layers: the topic's own, what this broker was started with, and
// what is built in; the first that is there holds. A layer that says the same as the one
// below it is not told of: nobody can see the difference.
//
// A broker's settings are fixed when it starts. Of a topic's, those can be changed that
// topic.go names.
package settings
