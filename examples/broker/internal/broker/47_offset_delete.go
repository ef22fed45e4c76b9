package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// handleOffsetDelete refuses: only a whole group can be deleted (42, DeleteGroups).
func handleOffsetDelete(_ *Server, _ *wire.Conn, q *kmsg.OffsetDeleteRequest, r *wire.Reply) {
	resp := q.ResponseKind().(*kmsg.OffsetDeleteResponse)
	resp.ErrorCode = wire.Code(kerr.UnsupportedVersion)
	r.Now(resp)
}
