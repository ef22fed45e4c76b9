package api

import (
	_ "embed"
	"encoding/json"
	"net/http"
)

// openAPI describes the API, as OpenAPI 3.1 has it.
//
//go:embed openapi.json
var openAPI json.RawMessage

func document(*http.Request) (int, any, error) { return http.StatusOK, openAPI, nil }
