package console

import (
	"embed"
	"io/fs"
)

//go:embed page
var pages embed.FS

// page returns the files of the page, in addition to those of webpage.
func page() fs.FS {
	folder, err := fs.Sub(pages, "page")
	if err != nil {
		panic("console: " + err.Error())
	}
	return folder
}
