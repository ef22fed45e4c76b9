// Package readme holds the code of README.md, observe/README.md and docs/migrating.md. The lines
// between a line "// README", "// observe/README" or "// docs/migrating" and a line "// end" are a
// block there, word for word. The tests run the code, and compare the two. There is nothing here to
// import.
//
// docs/migrating.md also has code that uses other libraries. That of go-zero and asynq is in bench,
// which requires them, and is compiled and run there. The folder testdata has the rest: Netty's is
// run where a JDK and Netty are installed; that of Kafka, RussellLuo/timingwheel and River is
// compared with the page, and the Go files are parsed.
package readme
