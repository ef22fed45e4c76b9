// Package console tests package durable/console in Chromium.
package console
