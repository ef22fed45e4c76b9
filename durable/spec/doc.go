// Package spec has a model of the protocol of durable timers, in Promela, and a
// test that checks it with spin. README.md in this folder says how to read it.
package spec
