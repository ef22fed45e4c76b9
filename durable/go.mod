module github.com/seed-782fa212/limbo/durable

go 1.25.0

require (
	github.com/seed-782fa212/limbo v0.0.0
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/seed-782fa212/limbo => ../
