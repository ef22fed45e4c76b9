// Package readme holds the code of README.md and of observe/README.md: what stands
// between a line "// README", or "// observe/README", and a line "// end" is a block
// there, word for word. The tests run it, and compare the two. There is nothing here to
// import.
package readme
