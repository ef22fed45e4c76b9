package cron_test

import (
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/cron"
)

func Example() {
	nightly, err := cron.Parse("30 2 * * *")
	if err != nil {
		fmt.Println(err)
		return
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 3, 28, 0, 0, 0, 0, berlin)
	for range 3 {
		at = nightly.Next(at)
		fmt.Println(at) // on 29 March the clocks go from 2:00 to 3:00
	}
	// Output:
	// 2026-03-28 02:30:00 +0100 CET
	// 2026-03-29 03:00:00 +0200 CEST
	// 2026-03-30 02:30:00 +0200 CEST
}

func ExampleParse() {
	_, err := cron.Parse("0 25 * * *")
	fmt.Println(err)
	_, err = cron.Parse("0 0 30 feb *")
	fmt.Println(err)
	// Output:
	// cron: field 2 (hour) is "25", must be 0 to 23
	// cron: "0 0 30 feb *" never matches: no month in field 4 (month) has a day in field 3 (day of month)
}

func ExampleSpec_Warning() {
	spec, _ := cron.Parse("* 0 * * *")
	fmt.Println(spec.Warning())
	// Output: runs every minute of hour 0, 60 times; for one run give field 1 (minute) one value, such as 0
}

func ExampleSpec_In() {
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		fmt.Println(err)
		return
	}
	noon, _ := cron.Parse("0 12 * * *")
	after := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	fmt.Println(noon.Next(after))
	fmt.Println(noon.In(tokyo).Next(after))
	// Output:
	// 2026-07-01 12:00:00 +0000 UTC
	// 2026-07-01 12:00:00 +0900 JST
}

func ExampleEvery() {
	shifts := cron.Every{Period: 8 * time.Hour, Offset: 6 * time.Hour}
	if err := shifts.Check(); err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	for range 3 {
		at = shifts.Next(at)
		fmt.Println(at)
	}
	// Output:
	// 2026-07-01 06:00:00 +0000 UTC
	// 2026-07-01 14:00:00 +0000 UTC
	// 2026-07-01 22:00:00 +0000 UTC
}
