package api

import (
	_ "embed"
	"encoding/json"
	"net/http"
)

// openAPI is the OpenAPI 3.1 document of the API.
//
//go:embed openapi.json
var openAPI json.RawMessage

func document(*http.Request) (int, any, error) { return http.StatusOK, openAPI, nil }
