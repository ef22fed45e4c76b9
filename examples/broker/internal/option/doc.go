// Package option fills in defaults and checks ranges of configurations.
package option
