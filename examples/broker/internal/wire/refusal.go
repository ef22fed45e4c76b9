package wire

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Refusal is the reason for refusing a request, as the client sees it.
type Refusal struct {
	Code    *kerr.Error
	Message string
}

// Fields returns the error code and message of a response; r may be nil.
func (r *Refusal) Fields() (code int16, message *string) {
	if r == nil {
		return 0, nil
	}
	return Code(r.Code), kmsg.StringPtr(r.Message)
}
