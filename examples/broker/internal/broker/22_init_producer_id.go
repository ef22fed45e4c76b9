package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

func handleInitProducerID(s *Server, c *wire.Conn, q *kmsg.InitProducerIDRequest, r *wire.Reply) {
	resp := q.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = log.NoProducer, -1
	if q.TransactionalID != nil {
		resp.ErrorCode = wire.Code(kerr.TransactionalIDAuthorizationFailed) // fatal to clients; they would retry other errors forever
	} else {
		// A client that names the id it had also gets a fresh one. Without transactions that is as
		// good as a higher epoch, and the broker need not remember ids.
		resp.ProducerID, resp.ProducerEpoch = s.Controller.NextProducerID(), 0
	}
	r.Now(resp)
}
