// Package checks holds tests of limbo that need a module from outside: a
// checker of histories, a schedule that others wrote; tests of the pages: that their
// links, and the names of files, functions and tests in them, lead somewhere; and a
// test that the files which git tracks are text, and small. They stand in a module of
// their own so that whoever imports limbo downloads nothing for them. They use
// exported names only. There is nothing here to import.
package checks
