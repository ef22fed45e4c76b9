// Command release makes a release of limbo's published modules in the current directory's
// repository, or rehearses one. RELEASING.md describes releases; .ci/release and .ci/outside.sh
// run this command.
//
//	release [-n] VERSION             commits and tags the release; with -n, in a clone only
//	release -rehearse DIR [GO...]    makes a module proxy in DIR, as outsiders would see the
//	                                 release, and checks each module with the first of the
//	                                 toolchains that it allows
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	forgetGit()
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run runs the command with the arguments in the current directory.
func run(ctx context.Context, args []string, w io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(w)
	dry := flags.Bool("n", false, "make the release in a clone, which is removed again")
	date := flags.String("date", time.Now().Format(time.DateOnly), "date of the release in the changelog")
	rehearsal := flags.String("rehearse", "", "rehearse a release in this `folder`, with the toolchains in the arguments")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	if _, err := time.Parse(time.DateOnly, *date); err != nil {
		return fmt.Errorf("-date is %q, must be a day such as 2026-01-31", *date)
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if *rehearsal != "" {
		return rehearse(ctx, root, *rehearsal, *date, flags.Args(), w)
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("there are %d arguments, must be one, the version", flags.NArg())
	}
	return release(root, flags.Arg(0), *date, *dry, w)
}
