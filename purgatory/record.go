package purgatory

// An operation's record and its watches are one allocation, in one of a few
// sizes; beyond the largest the watches are a second one.

type record1[K comparable] struct {
	Pending[K]
	space [1]watch[K]
}

type record4[K comparable] struct {
	Pending[K]
	space [4]watch[K]
}

type record16[K comparable] struct {
	Pending[K]
	space [16]watch[K]
}

func newPending[K comparable](keys int) *Pending[K] {
	switch {
	case keys <= 1:
		r := new(record1[K])
		r.watches = r.space[:0]
		return &r.Pending
	case keys <= 4:
		r := new(record4[K])
		r.watches = r.space[:0]
		return &r.Pending
	case keys <= 16:
		r := new(record16[K])
		r.watches = r.space[:0]
		return &r.Pending
	}
	return &Pending[K]{watches: make([]watch[K], 0, keys)}
}
