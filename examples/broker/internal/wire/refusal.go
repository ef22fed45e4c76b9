package wire

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Refusal is why something cannot be, for a client to read.
type Refusal struct {
	Code    *kerr.Error
	Message string
}

// Fields returns the error code and the message of an answer; r may be nil.
func (r *Refusal) Fields() (code int16, message *string) {
	if r == nil {
		return 0, nil
	}
	return Code(r.Code), kmsg.StringPtr(r.Message)
}
