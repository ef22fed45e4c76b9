package broker

import (
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// handlers maps API keys to handlers; each has a file of its own.
var handlers map[int16]func(*Server, *wire.Conn, kmsg.Request, *wire.Reply)

// The table is filled in init because the compiler reports an initialization cycle for a literal if
// a handler refers to the table.
func init() {
	handlers = map[int16]func(*Server, *wire.Conn, kmsg.Request, *wire.Reply){
		int16(kmsg.Produce):                   on(handleProduce),
		int16(kmsg.Fetch):                     on(handleFetch),
		int16(kmsg.ListOffsets):               on(handleListOffsets),
		int16(kmsg.Metadata):                  on(handleMetadata),
		int16(kmsg.OffsetCommit):              handleGroup,
		int16(kmsg.OffsetFetch):               handleGroup,
		int16(kmsg.FindCoordinator):           on(handleFindCoordinator),
		int16(kmsg.JoinGroup):                 handleGroup,
		int16(kmsg.Heartbeat):                 handleGroup,
		int16(kmsg.LeaveGroup):                handleGroup,
		int16(kmsg.SyncGroup):                 handleGroup,
		int16(kmsg.DescribeGroups):            handleGroup,
		int16(kmsg.ListGroups):                handleGroup,
		int16(kmsg.ApiVersions):               on(handleAPIVersions),
		int16(kmsg.CreateTopics):              on(handleCreateTopics),
		int16(kmsg.DeleteTopics):              on(handleDeleteTopics),
		int16(kmsg.DeleteRecords):             on(handleDeleteRecords),
		int16(kmsg.InitProducerID):            on(handleInitProducerID),
		int16(kmsg.OffsetForLeaderEpoch):      on(handleOffsetForLeaderEpoch),
		int16(kmsg.DescribeConfigs):           on(handleDescribeConfigs),
		int16(kmsg.DeleteGroups):              handleGroup,
		int16(kmsg.AlterConfigs):              on(handleAlterConfigs),
		int16(kmsg.CreatePartitions):          on(handleCreatePartitions),
		int16(kmsg.ElectLeaders):              on(handleElectLeaders),
		int16(kmsg.IncrementalAlterConfigs):   on(handleIncrementalAlterConfigs),
		int16(kmsg.OffsetDelete):              on(handleOffsetDelete),
		int16(kmsg.AlterPartitionAssignments): on(handleAlterPartitionReassignments),
	}
}

// on adapts a handler of one type of request.
func on[Q kmsg.Request](handle func(*Server, *wire.Conn, Q, *wire.Reply)) func(*Server, *wire.Conn, kmsg.Request, *wire.Reply) {
	return func(s *Server, c *wire.Conn, req kmsg.Request, r *wire.Reply) { handle(s, c, req.(Q), r) }
}

// handleGroup passes a group request to the coordinator.
func handleGroup(s *Server, c *wire.Conn, req kmsg.Request, r *wire.Reply) {
	s.groups.Handle(req, clientHost(c), r)
}

// clientHost returns a client's host in the form that Kafka's tools show.
func clientHost(c *wire.Conn) string {
	host, _, _ := net.SplitHostPort(c.RemoteAddr())
	return "/" + host
}
