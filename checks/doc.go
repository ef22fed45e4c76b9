// Package checks holds tests of limbo that need modules from outside: a checker of histories,
// and another cron implementation. Other tests check that the links in the pages, and the names
// of files, functions and tests in them, refer to something, and that the files tracked by git
// are text, and small. They are in a separate module, so that programs that import limbo
// download nothing for them. They use only exported names. There is nothing here to import.
package checks
