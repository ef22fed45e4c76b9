// Package page holds the tests of observe's page, in a browser. There is nothing here to
// import.
package page
