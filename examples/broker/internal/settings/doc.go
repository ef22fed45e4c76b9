// Package settings describes configurations to clients, and changes the ones that they may change.
//
// A value has up to three layers: the topic's own, the one that this broker was started with, and
// the built-in default. The first one that is set is effective. A layer equal to the one below it
// is omitted, because no client can see the difference.
//
// A broker's settings are fixed when it starts. Clients can change the topic settings named in
// topic.go.
package settings
