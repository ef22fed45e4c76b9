package selfcheck

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
)

// LogLevel is the value of the flag -log-level.
type LogLevel struct {
	level slog.Level
	set   bool
}

var levels = []struct {
	name  string
	level slog.Level
}{
	{"debug", slog.LevelDebug}, {"info", slog.LevelInfo}, {"warn", slog.LevelWarn}, {"error", slog.LevelError},
}

// AddLogLevel adds the flag -log-level. Call Logger when the flags have been parsed.
func AddLogLevel(flags *flag.FlagSet) *LogLevel {
	l := new(LogLevel)
	flags.Var(l, "log-level", "the least severe `level` that is logged, to stderr: debug, info, warn or error (default info with -serve, otherwise warn)")
	return l
}

// Logger returns a logger that writes to out. Without the flag the level is info if the program
// serves, otherwise warn, because a program that makes faults has a table to be read.
func (l *LogLevel) Logger(out io.Writer, serves bool) *slog.Logger {
	level := l.level
	switch {
	case l.set:
	case serves:
		level = slog.LevelInfo
	default:
		level = slog.LevelWarn
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
}

// String returns the level's name, or "" without the flag.
func (l *LogLevel) String() string {
	for _, known := range levels {
		if l.set && known.level == l.level {
			return known.name
		}
	}
	return ""
}

// Set sets the level by its name.
func (l *LogLevel) Set(name string) error {
	for _, known := range levels {
		if known.name == name {
			l.level, l.set = known.level, true
			return nil
		}
	}
	return fmt.Errorf("must be debug, info, warn or error")
}
