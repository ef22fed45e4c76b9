package observe

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
)

// The page is one document, so that it needs no other request but for its data: what its
// style and its script are written in, is put into it here.
var (
	//go:embed page/page.html
	pageHTML []byte
	//go:embed page/page.css
	pageCSS []byte
	//go:embed page/*.js
	scripts embed.FS

	pageJS = script("format", "chart", "wheel", "histogram", "pane", "list", "stream")

	page = bytes.ReplaceAll(bytes.ReplaceAll(pageHTML, []byte("/*page.css*/"), pageCSS), []byte("/*page.js*/"), pageJS)
)

// script is the files one after the other: each uses those before it.
func script(names ...string) []byte {
	whole := []byte("\"use strict\"\n")
	for _, name := range names {
		text, err := scripts.ReadFile("page/" + name + ".js")
		if err != nil {
			panic("observe: " + err.Error())
		}
		whole = append(whole, text...)
	}
	return whole
}

// policy allows that style, that script, and data from the same origin. Nothing else is
// loaded or run, whatever a key has in it.
var policy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; connect-src 'self'; " +
	"img-src data:; style-src " + hash(pageCSS) + "; script-src " + hash(pageJS)

func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
