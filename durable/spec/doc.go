// Package spec contains models of the protocol of durable timers, in Promela, and a test that
// checks them with spin. See README.md in this folder.
package spec
