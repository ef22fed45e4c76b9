// Package readme holds the code of README.md and of observe/README.md: the lines between a line
// "// README", or "// observe/README", and a line "// end" are a block there, word for word. The
// tests run the code, and compare the two. There is nothing here to import.
package readme
