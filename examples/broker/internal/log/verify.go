package log

import "fmt"

// Verify checks the log's invariants, for tests.
func (l *Log) Verify() error {
	kept := int64(0)
	for i, b := range l.batches {
		if b.last < b.Base {
			return fmt.Errorf("batch %d ends at %d, before its base %d", i, b.last, b.Base)
		}
		if i > 0 {
			before := l.batches[i-1]
			if b.Base != before.last+1 || b.position != before.position+int64(len(before.Raw)) {
				return fmt.Errorf("batch %d at %d does not follow the one before, which ends at %d", i, b.Base, before.last)
			}
		}
		kept += int64(len(b.Raw)) + batchOverhead
	}
	if kept != l.size {
		return fmt.Errorf("%d bytes are kept, not %d", kept, l.size)
	}
	if n := len(l.batches); n == 0 {
		if l.next != l.start {
			return fmt.Errorf("an empty log from %d to %d", l.start, l.next)
		}
	} else if first, last := l.batches[0], l.batches[n-1]; l.next != last.last+1 || l.written != last.position+int64(len(last.Raw)) || l.start < first.Base || l.start > first.last {
		return fmt.Errorf("a log from %d to %d, of batches from %d to %d", l.start, l.next, first.Base, last.last)
	}
	for i, e := range l.epochs {
		if e.Start >= l.next || i > 0 && (e.Epoch <= l.epochs[i-1].Epoch || e.Start <= l.epochs[i-1].Start || e.Start < l.start) {
			return fmt.Errorf("epochs %v of a log from %d to %d", l.epochs, l.start, l.next)
		}
	}
	return nil
}
