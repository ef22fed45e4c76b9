// Command licences prints docs/licences.md: the licences of all modules that programs link with
// limbo's published modules. Run it in the repository's directory:
//
//	go run ./checks/licences >docs/licences.md
//
// It fails for a licence that is unknown or not permissive.
package main

import (
	"fmt"
	"os"
)

func main() {
	modules, err := linked(".")
	if err == nil {
		var page string
		if page, err = render(modules); err == nil {
			_, err = os.Stdout.WriteString(page)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}
