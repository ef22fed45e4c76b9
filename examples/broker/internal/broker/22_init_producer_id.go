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
		resp.ErrorCode = wire.Code(kerr.TransactionalIDAuthorizationFailed) // fatal to clients; they would retry others for ever
	} else {
		// Also when a client names the id it had: without transactions a fresh
		// id is as good as a higher epoch, and nothing needs to be remembered.
		resp.ProducerID, resp.ProducerEpoch = s.Controller.NextProducerID(), 0
	}
	r.Now(resp)
}
