module github.com/seed-782fa212/limbo

go 1.26.0

require (
	github.com/stretchr/testify v1.12.1 // indirect
	github.com/twmb/franz-go v1.22.2 // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.15.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
)
