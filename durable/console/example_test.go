package console_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/console"
	"github.com/seed-782fa212/limbo/durable/memstore"
)

// Mount the console of a program's timers below a path, protected by a token.
func Example() {
	engine, err := memstore.New(memstore.Options{}) // programs use pebblestore or redisstore
	if err != nil {
		fmt.Println(err)
		return
	}
	timers, err := durable.New(engine, durable.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer timers.Close()

	c, err := console.New(timers, console.Options{Token: "a secret from the configuration"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close() // ends the streams and the bulk actions

	mux := http.NewServeMux()
	mux.Handle("/ops/console/", http.StripPrefix("/ops/console", c))
	server := httptest.NewServer(mux)
	defer server.Close()

	page, err := http.Get(server.URL + "/ops/console/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer page.Body.Close()
	html, err := io.ReadAll(page.Body)
	fmt.Println(page.StatusCode, strings.Contains(string(html), "<title>limbo console</title>"), err)

	overview, err := http.Get(server.URL + "/ops/console/api/overview")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer overview.Body.Close()
	fmt.Println(overview.StatusCode, "without the token")
	// Output:
	// 200 true <nil>
	// 401 without the token
}
