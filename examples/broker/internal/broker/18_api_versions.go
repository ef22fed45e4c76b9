package broker

import (
	"regexp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// softwareName is Kafka's pattern for the software name and version in ApiVersions 3.
var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

func handleAPIVersions(s *Server, _ *wire.Conn, q *kmsg.ApiVersionsRequest, r *wire.Reply) {
	resp := q.ResponseKind().(*kmsg.ApiVersionsResponse)
	if q.Version >= 3 && (!softwareName.MatchString(q.ClientSoftwareName) || !softwareName.MatchString(q.ClientSoftwareVersion)) {
		resp.ErrorCode = wire.Code(kerr.InvalidRequest)
	} else {
		resp.ApiKeys = wire.APIVersions()
	}
	r.Now(resp)
}
