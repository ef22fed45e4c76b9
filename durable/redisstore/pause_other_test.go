//go:build !unix

package redisstore

// Redis does not run here, and so neither do the tests that suspend it.
func (srv *server) stop() {}
func (srv *server) cont() {}
