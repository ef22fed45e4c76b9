package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// record is the contents of results.json, from which a report is made.
type record struct {
	Machine Machine
	Quick   bool
	Count   int
	Results []Result
	Gaps    []Gap
}

// save writes results.json into dir.
func (rec record) save(dir string) error {
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "results.json"), b, 0o644)
}

// loadRecords reads records and merges them into one. The results of a workload come from the
// last record that has it; the report mentions which.
func loadRecords(files []string) (rec record, err error) {
	for i, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return record{}, err
		}
		var next record
		if err := json.Unmarshal(b, &next); err != nil {
			return record{}, fmt.Errorf("%s: %w", name, err)
		}
		if i == 0 {
			rec = next
		} else if err := rec.replace(next); err != nil {
			return record{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	return rec, nil
}

// replace replaces the results of every workload that a later run has with the later ones.
func (rec *record) replace(later record) error {
	a, b := rec.Machine, later.Machine
	if a.CPU != b.CPU || a.Cores != b.Cores || a.Kernel != b.Kernel || a.Go != b.Go {
		return fmt.Errorf("measured on another machine: %s, %d cores, %s, %s", b.CPU, b.Cores, b.Kernel, b.Go)
	}
	if rec.Quick != later.Quick || rec.Count != later.Count {
		return fmt.Errorf("measured otherwise: quick %v, %d repetitions", later.Quick, later.Count)
	}
	var replaced []string
	for _, r := range later.Results {
		if !slices.Contains(replaced, r.Workload) {
			replaced = append(replaced, r.Workload)
		}
	}
	rec.Results = slices.DeleteFunc(rec.Results, func(r Result) bool { return slices.Contains(replaced, r.Workload) })
	rec.Results = append(rec.Results, later.Results...)
	rec.Gaps = slices.DeleteFunc(rec.Gaps, func(g Gap) bool { return slices.Contains(replaced, g.Workload) })
	rec.Gaps = append(rec.Gaps, slices.DeleteFunc(later.Gaps, func(g Gap) bool { return !slices.Contains(replaced, g.Workload) })...)
	rec.Machine.Commit += fmt.Sprintf("; %s at %s, with a load average of %s before", strings.Join(replaced, ", "), b.Commit, b.LoadBefore)
	return nil
}
