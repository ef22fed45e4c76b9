// Package option sets defaults and checks the ranges of configuration values.
package option
