//go:build !unix

package redisstore

// Redis does not run on this system, so the tests that suspend it do not run either.
func (srv *server) stop() {}
func (srv *server) cont() {}
