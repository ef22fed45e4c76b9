package main

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// reportPlot is one plot of the report. The kinds:
//
//	bars    groups by size, a bar for each impl
//	lines   against the size
//	spread  a distribution, from its quantiles
//	load    against the rate offered, a line for each impl at each size
type reportPlot struct {
	file, workload, metric string
	kind                   string
	by                     string // the parameter that groups the bars, unless it is the workload's size
	title, unit            string
	only                   Params // only rows with these parameters
	control                bool   // with the control
}

var reportPlots = []reportPlot{
	{"w1_cost_1.png", "W1", "ns_per_op", "bars", "", "W1 start and stop, one goroutine, by pending timers", "ns per start and stop", Params{"goroutines": 1}, false},
	{"w1_cost_2.png", "W1", "ns_per_op", "bars", "", "W1 start and stop, two goroutines, by pending timers", "ns per start and stop", Params{"goroutines": 2}, false},
	{"w2_memory.png", "W2", "bytes_per_timer", "bars", "", "W2 memory of a timer with its handle, by timers", "bytes of live heap", nil, false},
	{"w2_gc.png", "W2", "gc_ms", "bars", "", "W2 a full collection while timers are held, by timers", "ms", nil, false},
	{"w3_cpu.png", "W3", "cpu_ns_per_timer", "bars", "", "W3 CPU to fire a timer, by timers", "ns of CPU per timer", nil, true},
	{"w3_lateness.png", "W3", "", "spread", "", "W3 lateness at 250,000 timers a second", "ms late; early ones are drawn at 0.001", nil, true},
	{"w4_stall.png", "W4", "sched_max_us", "bars", "", "W4 longest wait of schedule or stop during a burst, by timers", "µs", nil, true},
	{"w4_drain.png", "W4", "drain_ms", "bars", "", "W4 time until the burst is drained, by timers", "ms", nil, false},
	{"w5_cpu.png", "W5", "cpu_ms", "bars", "", "W5 CPU in 5 s of silence", "ms of CPU", nil, true},
	{"w5_wakeups.png", "W5", "wakeups", "bars", "", "W5 wake-ups in 5 s of silence", "voluntary context switches", nil, true},
	{"w6_touch.png", "W6", "ns_per_touch", "bars", "", "W6 pushing a deadline out, by connections", "ns per touch", nil, false},
	{"w6_cpu.png", "W6", "cpu_pct", "bars", "", "W6 CPU at the connections' own rate, by connections", "% of one core", nil, true},
	{"w6_memory.png", "W6", "bytes_per_conn", "bars", "", "W6 memory of a connection's timer, by connections", "bytes of live heap", nil, false},
	{"w7_cost.png", "W7", "ns_per_op", "lines", "", "W7 start and stop against pending timers", "ns per start and stop", nil, false},
	{"w7_memory.png", "W7", "rss_bytes_per_timer", "lines", "", "W7 resident memory, from 100k pending timers", "bytes per timer", nil, false},
	{"w8_cost.png", "W8", "ns_per_op", "bars", "", "W8 watch and complete, by keys", "ns per operation", nil, false},
	{"w9_held.png", "W9", "held", "load", "", "W9 requests held, against those offered", "requests a second", nil, false},
	{"w9_cpu.png", "W9", "cpu_us_per_req", "load", "", "W9 CPU, against the rate offered", "µs of CPU per request", nil, false},
	{"w9_latency.png", "W9", "trigger_p99_us", "load", "", "W9 from trigger to completion, 99th percentile, against the rate offered", "µs", nil, false},
	{"w10_cost.png", "W10", "ns_per_completion", "bars", "", "W10 completing one, by how many watch its key", "ns per completion", nil, false},
	{"w11_rate.png", "W11", "ops_per_s", "bars", "", "W11 watch and complete, by goroutines", "operations a second", nil, false},
	{"w12_wake.png", "W12", "", "spread", "", "W12 from a produce to the answer of the parked fetch it wakes", "ms", nil, false},
	{"w13_schedules.png", "W13", "schedules_per_s", "bars", "", "W13 timers scheduled, an hour ahead, by timers", "timers a second", nil, false},
	{"w13_lifecycles.png", "W13", "lifecycles_per_s", "bars", "", "W13 whole lifecycles: scheduled, run and acknowledged, by timers", "timers a second", nil, false},
	{"w13_lateness.png", "W13", "", "spread", "", "W13 lateness at 5,000 timers a second", "ms late; early ones are drawn at 0.001", nil, false},
	{"w14_cost.png", "W14", "ns_per_op", "bars", "goroutines", "W14 a request and its reply, 100,000 in flight, by goroutines", "ns per request", nil, false},
	{"w15_memory.png", "W15", "bytes_per_poll", "bars", "", "W15 the server's memory of a parked HTTP poll, by polls", "bytes of live heap and stacks", nil, false},
	{"w16_occurrences.png", "W16", "occurrences_per_s", "bars", "", "W16 overdue schedules: an occurrence of each created, run and ended", "occurrences a second", nil, false},
	{"w17_pages.png", "W17", "next_page_ms", "bars", "", "W17 the next page of 100 timers, of those that wait", "ms", nil, false},
	{"w15_wake.png", "W15", "", "spread", "", "W15 from an event to the answer of the parked HTTP poll it wakes", "ms", nil, false},
}

type savedPlot struct{ workload, title, file string }

// Each impl has the same colour in all plots. limbo's are blue.
var colours = map[string]color.RGBA{
	"timingwheel":      {0x1f, 0x5f, 0xd6, 0xff},
	"timingwheel-page": {0xa9, 0xc4, 0xee, 0xff},
	"scheduler":        {0x6c, 0xa6, 0xf5, 0xff},
	"keyed":            {0x0b, 0x2d, 0x6b, 0xff},
	"stdlib":           {0xf2, 0x8e, 0x1c, 0xff},
	"hashedwheel":      {0x3c, 0x9d, 0x4e, 0xff},
	"heap":             {0xd0, 0x3a, 0x3a, 0xff},
	"go-zero":          {0x8e, 0x5a, 0xb8, 0xff},
	"netty-jvm":        {0x8a, 0x6a, 0x4f, 0xff},
	"purgatory":        {0x1f, 0x5f, 0xd6, 0xff},
	"threshold":        {0x0e, 0x9a, 0xa7, 0xff},
	"limbo-broker":     {0x1f, 0x5f, 0xd6, 0xff},
	"kfake":            {0xc2, 0x4d, 0x8f, 0xff},
	"durable-redis":    {0x1f, 0x5f, 0xd6, 0xff},
	"durable-pebble":   {0x6c, 0xa6, 0xf5, 0xff},
	"asynq":            {0xd0, 0x3a, 0x3a, 0xff},
	"nats":             {0x3c, 0x9d, 0x4e, 0xff},
	"calls":            {0x1f, 0x5f, 0xd6, 0xff},
	"calls-group":      {0x6c, 0xa6, 0xf5, 0xff},
	"map":              {0xf2, 0x8e, 0x1c, 0xff},
	"longpoll":         {0x1f, 0x5f, 0xd6, 0xff},
	"longpoll-h2":      {0x6c, 0xa6, 0xf5, 0xff},
	"longpoll-nodes":   {0x0b, 0x2d, 0x6b, 0xff},
	"net/http":         {0xf2, 0x8e, 0x1c, 0xff},
	"net/http-h2":      {0xf7, 0xc4, 0x8a, 0xff},
	controlName:        {0xa8, 0xa8, 0xa8, 0xff},
}

// For load plots, a colour for each impl at each size: darker without the page.
var loadColours = []color.RGBA{{0x1f, 0x5f, 0xd6, 0xff}, {0x9c, 0xbd, 0xf2, 0xff}, {0x0b, 0x7a, 0x4b, 0xff}, {0x8f, 0xd0, 0xa9, 0xff}}

const (
	plotWidth   = 9 * vg.Inch
	plotHeight  = 4.2 * vg.Inch
	legendWidth = 1.6 * vg.Inch
	leastMS     = 0.001 // smaller and negative values are drawn here
)

// savePlots draws each plot that has rows, and returns their names.
func savePlots(dir string, rows []Row) ([]savedPlot, error) {
	var saved []savedPlot
	for _, f := range reportPlots {
		var some []Row
		for _, row := range rows {
			if f.shows(row) {
				some = append(some, row)
			}
		}
		if len(some) == 0 {
			continue
		}
		p := plot.New()
		unit := f.unit
		p.Title.Padding = vg.Points(8)
		p.Title.TextStyle.Font.Size = vg.Points(13)
		grid := plotter.NewGrid()
		grid.Vertical.Color = nil
		grid.Horizontal.Color = color.Gray{0xdd}
		p.Add(grid)
		draw := map[string]func(*plot.Plot, reportPlot, []Row) error{"bars": drawBars, "lines": drawLines, "spread": drawSpread, "load": drawLoad}[f.kind]
		if err := draw(p, f, some); err != nil {
			return nil, err
		}
		if _, log := p.Y.Scale.(plot.LogScale); log {
			unit += ", log scale"
		}
		// Not as the axis's label: on a log scale gonum reserves the space for it in the wrong
		// place.
		p.Title.Text = f.title + "\n" + unit
		if err := savePlot(filepath.Join(dir, f.file), p, legendOf(f, some)); err != nil {
			return nil, err
		}
		saved = append(saved, savedPlot{f.workload, f.title, f.file})
	}
	return saved, nil
}

func (f reportPlot) shows(row Row) bool {
	if row.Workload != f.workload || row.Impl == controlName && !f.control {
		return false
	}
	for name, v := range f.only {
		if row.Params[name] != v {
			return false
		}
	}
	switch f.kind {
	case "spread":
		return len(row.Quantiles) > 0
	case "load":
		return len(row.Curve) > 0
	}
	_, ok := row.Stats[f.metric]
	return ok && (f.metric != "rss_bytes_per_timer" || row.size() >= 100_000)
}

// group returns the value by which a row's bar is grouped.
func (f reportPlot) group(row Row) int {
	if f.by != "" {
		return row.Params[f.by]
	}
	return row.size()
}

func (r Row) size() int { return r.Params[workloadNamed(r.Workload).size] }

// implsOf returns the impls that have a row, in the order of the rivals.
func implsOf(rows []Row) []string {
	var names []string
	for _, row := range rows {
		if !slices.Contains(names, row.Impl) {
			names = append(names, row.Impl)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(rivalIndex(a), rivalIndex(b)) })
	return names
}

// legendOf returns the legend, which is drawn next to the plot.
func legendOf(f reportPlot, rows []Row) plot.Legend {
	l := plot.NewLegend()
	l.Top, l.Left = true, true
	l.Padding = vg.Points(4)
	l.ThumbnailWidth = vg.Points(14)
	l.TextStyle.Font.Size = vg.Points(10)
	if f.kind == "load" {
		for i, row := range rows {
			size := strings.ReplaceAll(row.Params.String(), "_ms=", " ") // shorter, so that it fits
			l.Add(row.Impl+"\n"+size+" ms", swatch{loadColours[i%len(loadColours)]})
		}
		return l
	}
	for _, impl := range implsOf(rows) {
		l.Add(impl, swatch{colours[impl]})
	}
	return l
}

type swatch struct{ colour color.Color }

func (s swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(s.colour, []vg.Point{c.Min, {X: c.Min.X, Y: c.Max.Y}, c.Max, {X: c.Max.X, Y: c.Min.Y}})
}

func savePlot(file string, p *plot.Plot, l plot.Legend) error {
	img := vgimg.NewWith(vgimg.UseWH(plotWidth, plotHeight), vgimg.UseDPI(120))
	c := draw.New(img)
	p.Draw(draw.Crop(c, 6, -legendWidth, 4, -4))
	l.Draw(draw.Crop(c, plotWidth-legendWidth+8, 0, 0, -32))
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := (vgimg.PngCanvas{Canvas: img}).WriteTo(out); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// logTicks are 1, 2 and 5 times each power of ten in the range.
type logTicks struct{}

func (logTicks) Ticks(from, to float64) []plot.Tick {
	var ticks []plot.Tick
	decades := math.Log10(to / from)
	for e := math.Floor(math.Log10(from)); e <= math.Ceil(math.Log10(to)); e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			if v < from*.999 || v > to*1.001 {
				continue
			}
			label := number(v)
			if m != 1 && decades > 2.5 {
				label = ""
			}
			ticks = append(ticks, plot.Tick{Value: v, Label: label})
		}
	}
	return ticks
}

// evenTicks are the library's ticks, labelled like the tables.
func evenTicks(from, to float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(from, to)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = number(ticks[i].Value)
		}
	}
	return ticks
}

// logY makes the axis logarithmic if the values are far apart. It returns the start of the axis
// and whether it is logarithmic.
func logY(p *plot.Plot, values []float64) (from float64, log bool) {
	least, most := math.Inf(1), 0.
	for _, v := range values {
		if v > 0 {
			least, most = min(least, v), max(most, v)
		}
	}
	if most <= 0 || most/least < 20 {
		p.Y.Min, p.Y.Max = 0, max(most*1.12, 1e-9)
		p.Y.Tick.Marker = plot.TickerFunc(evenTicks)
		return 0, false
	}
	from = math.Pow(10, math.Floor(math.Log10(least*.7)))
	p.Y.Min, p.Y.Max = from, most*2
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = logTicks{}
	return from, true
}

// bars draws groups of bars from the base of the axis, each with its value.
type bars struct {
	base         float64
	groups       [][]bar // each bar of a group is at its impl's index
	barsPerGroup int
}

type bar struct {
	index  int
	value  float64
	colour color.Color
}

func drawBars(p *plot.Plot, f reportPlot, rows []Row) error {
	var sizes []int
	var values []float64
	for _, row := range rows {
		values = append(values, row.Stats[f.metric].Median)
		if !slices.Contains(sizes, f.group(row)) {
			sizes = append(sizes, f.group(row))
		}
	}
	slices.Sort(sizes)
	impls := implsOf(rows)
	base, _ := logY(p, values)
	b := bars{base: base, groups: make([][]bar, len(sizes)), barsPerGroup: len(impls)}
	labels := make([]string, len(sizes))
	for i, n := range sizes {
		labels[i] = count(n)
	}
	for _, row := range rows {
		i, index := slices.Index(sizes, f.group(row)), slices.Index(impls, row.Impl)
		if slices.ContainsFunc(b.groups[i], func(x bar) bool { return x.index == index }) {
			return fmt.Errorf("%s: two bars of %s at %s", f.file, row.Impl, labels[i])
		}
		b.groups[i] = append(b.groups[i], bar{index, row.Stats[f.metric].Median, colours[row.Impl]})
	}
	p.Add(b)
	p.NominalX(labels...)
	if len(sizes) == 1 && sizes[0] == 1 {
		p.NominalX("")
	}
	p.X.Min, p.X.Max = -.5, float64(len(sizes))-.5
	p.X.LineStyle.Color = color.Gray{0x88}
	return nil
}

func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	unit := x(1) - x(0)
	width := unit * .88 / vg.Length(b.barsPerGroup)
	style := p.X.Tick.Label
	style.Font.Size = min(vg.Points(8), width*.36)
	style.XAlign, style.YAlign = draw.XCenter, draw.YBottom
	for i, group := range b.groups {
		for _, bar := range group {
			left := x(float64(i)) + (vg.Length(bar.index)-vg.Length(b.barsPerGroup)/2)*width
			top := y(max(bar.value, b.base))
			if bar.value <= 0 {
				top = c.Min.Y
			}
			c.FillPolygon(bar.colour, []vg.Point{
				{X: left + width*.06, Y: c.Min.Y}, {X: left + width*.06, Y: top},
				{X: left + width*.94, Y: top}, {X: left + width*.94, Y: c.Min.Y},
			})
			c.FillText(style, vg.Point{X: left + width/2, Y: top + vg.Points(2)}, number(bar.value))
		}
	}
}

// points are medians, with the range of the repetitions.
type points struct {
	plotter.XYs
	plotter.YErrors
}

func (pts *points) add(x float64, s Stat) {
	pts.XYs = append(pts.XYs, plotter.XY{X: x, Y: s.Median})
	pts.YErrors = append(pts.YErrors, struct{ Low, High float64 }{s.Median - max(s.Min, s.Median/100), s.Max - s.Median})
}

func drawLines(p *plot.Plot, f reportPlot, rows []Row) error {
	p.X.Label.Text = "timers pending, log scale"
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = plot.TickerFunc(func(from, to float64) []plot.Tick {
		var ticks []plot.Tick
		for v := 1.; v <= to*1.01; v *= 10 {
			if v >= from*.99 {
				ticks = append(ticks, plot.Tick{Value: v, Label: count(int(v))})
			}
		}
		return ticks
	})
	var values []float64
	for _, impl := range implsOf(rows) {
		var pts points
		for _, row := range rows {
			if s := row.Stats[f.metric]; row.Impl == impl && s.Median > 0 {
				pts.add(float64(row.size()), s)
				values = append(values, s.Median, s.Max)
			}
		}
		if err := addLine(p, colours[impl], limboImpls[impl], pts); err != nil {
			return err
		}
	}
	logY(p, values)
	p.X.Min, p.X.Max = p.X.Min*.8, p.X.Max*1.25
	return nil
}

func addLine(p *plot.Plot, colour color.Color, emphasized bool, pts points) error {
	if len(pts.XYs) == 0 {
		return nil
	}
	line, dots, err := plotter.NewLinePoints(pts.XYs)
	if err != nil {
		return err
	}
	line.Color, dots.Color = colour, colour
	line.Width = vg.Points(1.6)
	if emphasized {
		line.Width = vg.Points(2.8)
	}
	dots.Shape, dots.Radius = draw.CircleGlyph{}, vg.Points(2.6)
	p.Add(line, dots)
	if len(pts.YErrors) > 0 {
		whiskers, err := plotter.NewYErrorBars(pts)
		if err != nil {
			return err
		}
		whiskers.Color = colour
		p.Add(whiskers)
	}
	return nil
}

// drawLoad draws a metric against the offered rate.
func drawLoad(p *plot.Plot, f reportPlot, rows []Row) error {
	p.X.Label.Text = "requests a second offered, log scale"
	p.X.Scale = plot.LogScale{}
	var values []float64
	var ticks plot.ConstantTicks
	for i, row := range rows {
		var pts points
		for _, at := range row.Curve {
			rate, s := at["rate"].Median, at[f.metric]
			if s.Median <= 0 {
				continue
			}
			pts.add(rate, s)
			values = append(values, s.Median, s.Max) // the whiskers must fit too
			if tick := (plot.Tick{Value: rate, Label: number(rate)}); !slices.Contains(ticks, tick) {
				ticks = append(ticks, tick)
			}
		}
		if err := addLine(p, loadColours[i%len(loadColours)], true, pts); err != nil {
			return err
		}
	}
	p.X.Tick.Marker = ticks
	logY(p, values)
	p.X.Min, p.X.Max = p.X.Min*.8, p.X.Max*1.25
	return nil
}

// drawSpread draws percentiles on an axis with equal widths for each further nine.
func drawSpread(p *plot.Plot, _ reportPlot, rows []Row) error {
	const most = 4.5 // the x coordinate of the maximum
	at := func(q float64) float64 { return min(-math.Log10(max(1-q, 1e-9)), most) }
	p.X.Label.Text = "percentile"
	p.X.Tick.Marker = plot.ConstantTicks{
		{Value: 0, Label: "least"}, {Value: at(.5), Label: "50"}, {Value: 1, Label: "90"}, {Value: 2, Label: "99"},
		{Value: 3, Label: "99.9"}, {Value: 4, Label: "99.99"}, {Value: most, Label: "most"},
	}
	largest, least := leastMS, math.Inf(1)
	for _, row := range rows {
		var pts points
		for i, q := range quantilePoints {
			v := max(row.Quantiles[i], leastMS)
			largest, least = max(largest, v), min(least, v)
			pts.XYs = append(pts.XYs, plotter.XY{X: at(q), Y: v})
		}
		if err := addLine(p, colours[row.Impl], limboImpls[row.Impl], pts); err != nil {
			return err
		}
	}
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = logTicks{}
	p.Y.Min, p.Y.Max = least*.8, largest*1.3
	p.X.Min, p.X.Max = -.05, most+.1
	return nil
}
