// Package readme holds the code of README.md, observe/README.md and docs/migrating.md. The lines
// between a line "// README", "// observe/README" or "// docs/migrating" and a line "// end" are a
// block there, word for word. The tests run the code, and compare the two. There is nothing here to
// import.
//
// docs/migrating.md also has code that uses other libraries. That of go-zero, asynq and River is in
// bench, which requires them, and is compiled there; it is run too, except River's calls of Postgres.
// The folder testdata has the rest: Netty's is run where a JDK and Netty are installed; that of Kafka
// and RussellLuo/timingwheel is compared with the page, and the Go file is parsed. No test compiles
// Kafka's, because Debian has no package of its jars.
package readme
